# SPDX-License-Identifier: Apache-2.0
"""NCCL as NVIDIA ships it to PyTorch: wheels of PyPI, of which only the library and its headers are used.

They are some hundred megabytes each, so they are kept below build-test/nccl/: what is there is not fetched
again. The newest one is asked for each time; without PyPI the newest one that is there stands for it.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

PACKAGE = "nvidia-nccl-cu13"
NEWEST = "newest"
SECONDS = 900       # for a download
CACHE = pathlib.Path(__file__).resolve().parents[2] / "build-test/nccl"
WANTED = re.compile(r"nvidia/nccl/(lib/libnccl\.so\.2|include/.*)")


class Missing(Exception):
    """In words of one paragraph."""


class Release:
    """One that is unpacked."""

    def __init__(self, folder):
        self.version = folder.name
        self.library = folder / "nvidia/nccl/lib/libnccl.so.2"
        self.headers = folder / "nvidia/nccl/include"


def version_of(wheel):
    return wheel.name.split("-")[1]


def age(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def kept(cache, version=None):
    """Wheels that are there, the newest one last; or those of that version."""
    found = cache.glob(f"{PACKAGE.replace('-', '_')}-*.whl")
    return sorted((wheel for wheel in found if version in (None, version_of(wheel))),
                  key=lambda wheel: age(version_of(wheel)))


def download(cache, requirement, python=sys.executable):
    """pip does not fetch again what is there. Missing: it did not do it."""
    command = [python, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", cache, requirement]
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "pip.log", "w", encoding="utf-8") as log:
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                    timeout=SECONDS, check=False).returncode
        except (subprocess.TimeoutExpired, OSError) as error:
            status = error
    if status != 0:
        said = (cache / "pip.log").read_text("utf-8", "replace").strip()[-1500:]
        raise Missing(f"pip has not got {requirement} ({status}). It needs pip for {python} (python3-pip) "
                      f"and a way to PyPI, or the wheel in {cache}. It said:\n{said}")


def wheel(version, cache=CACHE, python=sys.executable):
    """Path of the wheel of that version, or of the newest one."""
    if version == NEWEST:
        try:
            download(cache, PACKAGE, python)
        except Missing as problem:
            if not kept(cache):
                raise
            print(f"the newest one that was fetched before, as {problem}", file=sys.stderr)
    elif not kept(cache, version):
        download(cache, f"{PACKAGE}=={version}", python)
    return kept(cache, None if version == NEWEST else version)[-1]


def release(version, cache=CACHE, python=sys.executable):
    """A Release, unpacked if it was not."""
    found = wheel(version, cache, python)
    folder, new = cache / version_of(found), cache / f"{version_of(found)}.new"
    if not folder.exists():
        shutil.rmtree(new, ignore_errors=True)
        with zipfile.ZipFile(found) as file:
            for name in file.namelist():
                if WANTED.fullmatch(name):
                    file.extract(name, new)
        new.rename(folder)
    return Release(folder)
