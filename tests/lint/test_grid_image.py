# SPDX-License-Identifier: Apache-2.0
"""The kernels that the tree carries as PTX are those of its sources, and fit every GPU that they are for."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "daemon/backend/cuda"
sys.path.insert(0, str(FOLDER))

import grid_image  # noqa: E402

TOOLKIT = pathlib.Path("/usr/local/cuda/bin")


def tool(name):
    found = shutil.which(name) or shutil.which(name, path=str(TOOLKIT))
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def test_the_ptx_has_the_hash_of_its_sources():
    assert grid_image.is_current(), "run grid_image.py ptx grid.ptx"


def test_the_compiler_makes_the_same_ptx_again():
    nvcc = tool("nvcc")
    carried = (FOLDER / "grid.ptx").read_text()
    if grid_image.release(nvcc) not in carried.splitlines()[2]:
        pytest.skip("grid.ptx was made by another release of nvcc")
    assert grid_image.ptx(nvcc) == carried


@pytest.mark.parametrize("card", grid_image.CARDS)
def test_sums_of_few_inputs_spill_no_registers(card, tmp_path):
    said = subprocess.run([tool("ptxas"), "-v", f"-arch=sm_{card}", str(FOLDER / "grid.ptx"), "-o",
                           str(tmp_path / "out")], stderr=subprocess.PIPE, check=True, text=True).stderr
    spills = dict(re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores", said, re.S))
    few = [name for name in spills if re.fullmatch(r"gradsync_sum_(f32|f64|f16|bf16)_[1-4]", name)]
    assert len(few) == 16
    assert {name: spills[name] for name in few if spills[name] != "0"} == {}
