# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel in 16 bits, against the averages of the same ones in more."""
import pytest

from launch import passed

pytestmark = pytest.mark.heavy
#: The error that one rounding makes at most; what is below the smallest normal float16 has a larger one.
ROUNDING = {"fp16": 2 ** -11, "float16": 2 ** -11, "bf16": 2 ** -8, "bfloat16": 2 ** -8}
# A hook rounds what each rank contributes, and the result is rounded; 16-bit parameters have the latter only.
BOUNDS = {"fp16_compress_hook": 2.2, "bf16_compress_hook": 2.2, "float16": 1.1, "bfloat16": 1.1}


@pytest.mark.parametrize("ranks", [2, 3])
def test_compressed(ranks):
    found = {(each["how"], each["rank"]): each["worst"] for each in passed(ranks, "compressed.py", *BOUNDS)}
    assert found.keys() == {(how, rank) for how in BOUNDS for rank in range(ranks)}
    for (how, rank), worst in found.items():
        assert 0 < worst < BOUNDS[how] * ROUNDING[how.split("_")[0]], (how, rank)
