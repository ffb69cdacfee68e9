# SPDX-License-Identifier: Apache-2.0
"""The libraries that NVIDIA ships are as the project takes for granted of NCCL, as far as that shows without
a GPU: they are loaded and called (test_libraries.c), and their header is compared with ours (types.cc)."""
import os
import pathlib
import subprocess
import zipfile

import pytest

import wheels

TREE = pathlib.Path(__file__).resolve().parents[2]
TOOLKITS = ("/usr/local/cuda/include", "/usr/include")
RELEASES = ("2.28.9", wheels.NEWEST)


@pytest.fixture(scope="session", params=RELEASES)
def release(request):
    return wheels.release(request.param)


@pytest.fixture(scope="session", name="toolkit")
def headers_of_cuda():
    """The folder of the headers of CUDA, some of which nccl.h includes."""
    found = [folder for folder in TOOLKITS if os.path.exists(f"{folder}/cuda_runtime.h")]
    if not found:
        pytest.skip(f"types are not compared with nccl.h: no cuda_runtime.h in {' or '.join(TOOLKITS)}")
    return found[0]


def test_the_library_does_what_it_is_used_for(release):
    program = pathlib.Path(os.environ["GRADSYNC_BUILD"]) / "tests/nccl/test_libraries"
    done = subprocess.run([program], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=600,
                          env={**os.environ, "GRADSYNC_TEST_NCCL": str(release.library),
                               "GRADSYNC_TEST_NCCL_VERSION": release.version})
    assert done.returncode == 0, done.stdout


def compare(release, toolkit, tree):
    """Compiles types.cc with the proto/nccl.h of that tree. Returns the complaints of the compiler."""
    done = subprocess.run([os.environ.get("CXX", "g++"), "-std=gnu++17", "-Wall", "-Wextra", "-Werror",
                           "-fsyntax-only", "-I", tree, "-isystem", release.headers, "-isystem", toolkit,
                           TREE / "tests/nccl/types.cc"], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.cuda
def test_types_and_numbers_are_those_of_its_header(release, toolkit):
    assert compare(release, toolkit, TREE) == ""


@pytest.mark.cuda
@pytest.mark.parametrize("right, wrong, words", [
    ("NCCL_BFLOAT16 = 9", "NCCL_BFLOAT16 = 10", "NCCL_BFLOAT16"),
    ("NCCL_MIN = 3", "NCCL_MIN = 2", "NCCL_MIN"),
    ("#define NCCL_MAGIC 0xcafebeefu", "#define NCCL_MAGIC 0xcafebeeu", "NCCL_MAGIC"),
    ("char bytes[128]", "char bytes[64]", "sizeof(struct nccl_id)"),
    ("int cga_cluster_size, min_ctas,", "int min_ctas, cga_cluster_size,", "cga_cluster_size"),
    ("int split_share;", "int64_t split_share;", "split_share"),
    ("int ranks, struct nccl_id id, int rank", "int ranks, int rank, struct nccl_id id",
     "ncclCommInitRankConfig"),
    ("size_t count, int type", "int count, int type", "ncclAllReduce"),
    ("(nccl_comm comm, void *handle)", "(nccl_comm comm, void **handle)", "ncclCommDeregister"),
    ("(nccl_comm comm, int flags)", "(nccl_comm comm)", "ncclCommRevoke"),
])
def test_a_difference_is_found(right, wrong, words, release, toolkit, tmp_path):
    (tmp_path / "proto").mkdir()
    for name in ("nccl.h", "cuda.h"):
        text = (TREE / "proto" / name).read_text()
        (tmp_path / "proto" / name).write_text(text.replace(right, wrong) if name == "nccl.h" else text)
    assert (tmp_path / "proto/nccl.h").read_text() != (TREE / "proto/nccl.h").read_text()
    assert f"static assertion failed: {words}" in compare(release, toolkit, tmp_path)


def keep(folder, version):
    with zipfile.ZipFile(folder / f"nvidia_nccl_cu13-{version}-py3-none-any.whl", "w") as file:
        file.writestr("nvidia/nccl/lib/libnccl.so.2", version)
        file.writestr("nvidia/nccl/include/nccl.h", "")
        file.writestr("nvidia/nccl/lib/large", "")


def python_of(folder, script):
    """Makes a script that takes the place of the Python whose pip is called."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_is_there_is_not_fetched_again(tmp_path):
    none = python_of(tmp_path, "echo No module named pip; exit 1")
    keep(tmp_path, "2.9.1")
    keep(tmp_path, "2.10.0")
    assert wheels.release("2.9.1", tmp_path, none).library.read_text() == "2.9.1"
    made = wheels.release(wheels.NEWEST, tmp_path, none)
    assert (made.version, made.library.read_text()) == ("2.10.0", "2.10.0")
    assert sorted(path.name for path in made.library.parent.iterdir()) == ["libnccl.so.2"]


def test_who_cannot_fetch_says_what_is_missing(tmp_path):
    none = python_of(tmp_path, "echo No module named pip; exit 1")
    for version in ("2.9.1", wheels.NEWEST):
        with pytest.raises(wheels.Missing, match="(?s)python3-pip.*a way to PyPI.*No module named pip"):
            wheels.release(version, tmp_path, none)
    with pytest.raises(wheels.Missing, match="No such file"):
        wheels.release("2.9.1", tmp_path, tmp_path / "none")


def test_what_pip_fetches_is_used(tmp_path):
    keep(tmp_path, "2.11.0")
    (tmp_path / "cache").mkdir()
    pip = python_of(tmp_path, f'cp {tmp_path}/*.whl {tmp_path}/cache; echo "$@" >{tmp_path}/said')
    assert wheels.release(wheels.NEWEST, tmp_path / "cache", pip).version == "2.11.0"
    assert (tmp_path / "said").read_text().endswith(f"--dest {tmp_path}/cache nvidia-nccl-cu13\n")
