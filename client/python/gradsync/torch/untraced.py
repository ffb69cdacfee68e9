# SPDX-License-Identifier: Apache-2.0
"""Functions of ours that torch.compile() leaves alone."""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def untraced(function: Callable[P, T]) -> Callable[P, T]:
    """torch.compiler.disable(), but only once the compiler was loaded: disable() would load it, which takes
    seconds, and most trainings compile nothing."""
    disabled: Callable[P, T] | None = None

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*arguments, **named)
            disabled = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return disabled(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
