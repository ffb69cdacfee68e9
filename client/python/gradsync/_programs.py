# SPDX-License-Identifier: Apache-2.0
"""The commands that a wheel brings: each becomes the program that lies in the wheel."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._native import BUNDLE


def _become(folder: str, name: str) -> NoReturn:
    path = BUNDLE / folder / name
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as problem:
        sys.exit(f"{name}: cannot run {path}: {problem.strerror}. Only the wheel brings the programs; "
                 "elsewhere they are installed by themselves")


def gradsyncctl() -> NoReturn:
    """The command gradsyncctl."""
    _become("bin", "gradsyncctl")


def gradsyncd() -> NoReturn:
    """The command gradsyncd."""
    _become("sbin", "gradsyncd")
