# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of a .cu file, and writes what programs embed.

  kernel_image.py ptx SOURCE [NVCC]                PTX beside the source, for every GPU from sm_80 on, with
                                                   the hash of the source and all that it includes
  kernel_image.py fatbin SOURCE OUT NVCC DEPFILE   the same PTX, and machine code for sm_80, sm_90, sm_100
  kernel_image.py embed IMAGE OUT SYMBOL           assembler source that contains the image
  kernel_image.py check SOURCE                     fails unless the PTX has the hash of its sources

PTX of CUDA 13.0 has ISA version 9.0, which drivers from 580 on understand (CUDA_DRIVER_LEAST).
"""
import hashlib
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++17", "-fmad=false"]
CARDS = ["80", "90", "100"]
LEAST = "80"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(source, found=()):
    """The file and what it includes from its own folder, each once."""
    source = pathlib.Path(source).resolve()
    found = [*found, source]
    for name in INCLUDE.findall(source.read_text()):
        if source.parent / name not in found:
            found = sources(source.parent / name, found)
    return found


def carried(source):
    return pathlib.Path(source).with_suffix(".ptx")


def digest(source):
    found = hashlib.sha256(" ".join(FLAGS + [LEAST]).encode())
    for path in sources(source):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def stamp(source):
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            f"// Made by kernel_image.py from sources with SHA-256 {digest(source)}\n")


def is_current(source):
    return carried(source).exists() and carried(source).read_text().startswith(stamp(source))


def release(nvcc):
    """As in "Cuda compilation tools, release 13.0, V13.0.88"."""
    said = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return next(line for line in said.splitlines() if "release" in line)


def ptx(source, nvcc):
    """The text without nvcc's own comments and indentation."""
    done = subprocess.run([nvcc, *FLAGS, f"-arch=compute_{LEAST}", "-ptx", "-o", "-", str(source)],
                          stdout=subprocess.PIPE, check=True, text=True)
    lines = (line.strip() for line in done.stdout.splitlines())
    code = (line for line in lines if line and not line.startswith("//"))
    return stamp(source) + f"// {release(nvcc)}\n" + "".join(line + "\n" for line in code)


def fatbin(source, out, nvcc, depfile):
    code = [f"-gencode=arch=compute_{card},code=sm_{card}" for card in CARDS]
    code.append(f"-gencode=arch=compute_{LEAST},code=compute_{LEAST}")
    subprocess.run([nvcc, *FLAGS, *code, "-fatbin", "-o", out, source], check=True)
    pathlib.Path(depfile).write_text(f"{out}: {' '.join(map(str, sources(source)))}\n")


def embed(image, out, symbol):
    content = pathlib.Path(image).read_bytes()
    pathlib.Path(out).write_text(
        f"/* {hashlib.sha256(content).hexdigest()} */\n"
        f".section .rodata\n.balign 64\n.global {symbol}\n.hidden {symbol}\n{symbol}:\n"
        f".incbin \"{pathlib.Path(image).resolve()}\"\n.byte 0\n.section .note.GNU-stack,\"\"\n")


def main(arguments):
    what = arguments[0] if len(arguments) > 1 else ""
    if what == "ptx":
        nvcc = arguments[2] if len(arguments) > 2 else "nvcc"
        carried(arguments[1]).write_text(ptx(arguments[1], nvcc))
    elif what == "fatbin":
        fatbin(*arguments[1:])
    elif what == "embed":
        embed(*arguments[1:])
    elif what == "check":
        if not is_current(arguments[1]):
            return f"{carried(arguments[1])} is not of these sources: run kernel_image.py ptx {arguments[1]}"
    else:
        return __doc__
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
