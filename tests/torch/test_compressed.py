# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel in 16 bits, against those in 32."""
import pytest

from launch import run


# The rounding of one input, that of the result, and the loss of one bit by the division.
@pytest.mark.parametrize("hook, bound", [("fp16_compress_hook", 2e-3), ("bf16_compress_hook", 1.6e-2)])
def test_compressed(hook, bound):
    ended = run(2, "compressed.py", hook)
    assert ended.status == 0, ended.out + ended.err
    results = ended.results()
    assert len(results) == 2
    for each in results:
        assert each["unset"] == [] and each["same"]
        assert 0 < each["worst"] < bound
        assert each["moved"] == [2 * each["size"]], "two bytes for each parameter"
