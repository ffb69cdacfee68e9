# SPDX-License-Identifier: Apache-2.0
"""The kernels that the tree carries as PTX are those of their sources, and fit every GPU they are for."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "proto"))

import kernel_image  # noqa: E402

TOOLKIT = pathlib.Path("/usr/local/cuda/bin")
GRID = TREE / "daemon/backend/cuda/grid.cu"
SOURCES = sorted(path for folder in ("client", "daemon") for path in (TREE / folder).rglob("*.cu"))


def tool(name):
    found = shutil.which(name) or shutil.which(name, path=str(TOOLKIT))
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def test_there_is_something_to_check():
    assert GRID in SOURCES
    assert {path.name for path in kernel_image.sources(GRID)} == {"grid.cu", "grid.h", "grid_body.h",
                                                                  "grid_pass.h"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_ptx_has_the_hash_of_its_sources(source):
    assert kernel_image.is_current(source), f"run kernel_image.py ptx {source.relative_to(TREE)}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_compiler_makes_the_same_ptx_again(source):
    nvcc = tool("nvcc")
    carried = kernel_image.carried(source).read_text()
    if kernel_image.release(nvcc) not in carried.splitlines()[2]:
        pytest.skip(f"{source.stem}.ptx was made by another release of nvcc")
    assert kernel_image.ptx(source, nvcc) == carried


def registers(source, card, tmp_path):
    """The report of ptxas on each kernel."""
    command = [tool("ptxas"), "-v", f"-arch=sm_{card}", str(kernel_image.carried(source)), "-o",
               str(tmp_path / "out")]
    return subprocess.run(command, stderr=subprocess.PIPE, check=True, text=True).stderr


@pytest.mark.parametrize("card", kernel_image.CARDS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_kernels_of_few_inputs_spill_no_registers(source, card, tmp_path):
    said = registers(source, card, tmp_path)
    spills = dict(re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores", said, re.S))
    few = [name for name in spills if not name.startswith("gradsync_")
           or re.fullmatch(r"gradsync_sum_(f32|f64|f16|bf16)_[1-4]", name)]
    assert len(few) == (16 if source == GRID else said.count("entry function"))
    assert {name: spills[name] for name in few if spills[name] != "0"} == {}
