# SPDX-License-Identifier: Apache-2.0
"""Notices parameters, buffers and modules that are put into a module after it was wrapped."""
from __future__ import annotations

import weakref
from typing import Any

from torch import nn
from torch.nn.modules import module as registry


class Changes:
    """Whether anything was put into the modules of a model since it was last looked at."""

    def __init__(self, model: nn.Module) -> None:
        self.any = False
        _install()
        for each in model.modules():
            _watched.setdefault(each, weakref.WeakSet()).add(self)


_watched: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[Changes]] = weakref.WeakKeyDictionary()
_installed = False


def _noticed(module: nn.Module, _name: str, _what: Any) -> None:
    for changes in _watched.get(module, ()):
        changes.any = True


def _install() -> None:
    global _installed
    if not _installed:
        registry.register_module_parameter_registration_hook(_noticed)
        registry.register_module_buffer_registration_hook(_noticed)
        registry.register_module_module_registration_hook(_noticed)
        _installed = True
