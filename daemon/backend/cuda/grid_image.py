# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels, and writes what the daemon embeds.

  grid_image.py ptx OUT [NVCC]             PTX for every GPU from sm_80 on, with the hash of its sources
  grid_image.py fatbin OUT NVCC DEPFILE    the same PTX, and machine code for sm_80, sm_90 and sm_100
  grid_image.py embed IMAGE OUT            assembler source that contains the image
  grid_image.py check                      fails unless grid.ptx has the hash of its sources

PTX of CUDA 13.0 has ISA version 9.0, which drivers from 580 on understand (CUDA_DRIVER_LEAST).
"""
import hashlib
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ["grid.cu", "grid.h", "grid_body.h", "grid_pass.h"]
FLAGS = ["-std=c++17", "-fmad=false", "-I" + str(HERE)]
CARDS = ["80", "90", "100"]
LEAST = "80"


def digest():
    found = hashlib.sha256(" ".join(FLAGS[:2] + [LEAST]).encode())
    for name in SOURCES:
        found.update(name.encode() + b"\0" + (HERE / name).read_bytes() + b"\0")
    return found.hexdigest()


def stamp():
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            f"// Made by grid_image.py from sources with SHA-256 {digest()}\n")


def is_current():
    return (HERE / "grid.ptx").read_text().startswith(stamp())


def release(nvcc):
    """As in "Cuda compilation tools, release 13.0, V13.0.88"."""
    said = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return next(line for line in said.splitlines() if "release" in line)


def ptx(nvcc):
    """The text without nvcc's own comments and indentation."""
    done = subprocess.run([nvcc, *FLAGS, f"-arch=compute_{LEAST}", "-ptx", "-o", "-", str(HERE / "grid.cu")],
                          stdout=subprocess.PIPE, check=True, text=True)
    lines = (line.strip() for line in done.stdout.splitlines())
    code = (line for line in lines if line and not line.startswith("//"))
    return stamp() + f"// {release(nvcc)}\n" + "".join(line + "\n" for line in code)


def fatbin(out, nvcc, depfile):
    code = [f"-gencode=arch=compute_{card},code=sm_{card}" for card in CARDS]
    code.append(f"-gencode=arch=compute_{LEAST},code=compute_{LEAST}")
    subprocess.run([nvcc, *FLAGS, *code, "-fatbin", "-o", out, str(HERE / "grid.cu")], check=True)
    pathlib.Path(depfile).write_text(f"{out}: {' '.join(str(HERE / name) for name in SOURCES)}\n")


def embed(image, out):
    content = pathlib.Path(image).read_bytes()
    pathlib.Path(out).write_text(
        f"/* {hashlib.sha256(content).hexdigest()} */\n"
        ".section .rodata\n.balign 64\n.global grid_image\n.hidden grid_image\ngrid_image:\n"
        f".incbin \"{pathlib.Path(image).resolve()}\"\n.byte 0\n.section .note.GNU-stack,\"\"\n")


def main(arguments):
    what = arguments[0] if arguments else ""
    if what == "ptx":
        pathlib.Path(arguments[1]).write_text(ptx(arguments[2] if len(arguments) > 2 else "nvcc"))
    elif what == "fatbin":
        fatbin(*arguments[1:])
    elif what == "embed":
        embed(*arguments[1:])
    elif what == "check":
        return 0 if is_current() else "grid.ptx is not of these sources: run grid_image.py ptx grid.ptx"
    else:
        return __doc__
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
