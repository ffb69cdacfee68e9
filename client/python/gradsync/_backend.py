# SPDX-License-Identifier: Apache-2.0
"""Makes the backend "gradsync" known to torch.distributed. Where gradsync is installed, torch calls
register() when it is imported (entry point torch.backends). The rest is imported with the first group."""
from __future__ import annotations

from typing import Any


def register() -> None:
    """Registers the backend, unless it is known, or this torch has no distributed package."""
    import torch.distributed as dist
    if dist.is_available() and "GRADSYNC" not in dist.Backend._plugins:
        dist.Backend.register_backend("gradsync", _create, extended_api=True, devices=["cpu"])


def _create(options: Any, _given: Any) -> Any:
    from .torch.group import create
    return create(options)
