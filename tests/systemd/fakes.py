# SPDX-License-Identifier: Apache-2.0
"""GPUs and NCCL for machines that have none: those of tests/fakes. All machines have the same GPUs, because
NCCL's ranks meet in the GPUs' folder."""
import shutil

from machine import SHARED

GPUS = 4
FOLDER = "/opt/fakes"
GPU = f"{SHARED}/gpu"
FILES = ("fake-kernels.so", "gpu/libcuda.so.1", "gpu/fake-gpu-context", "nccl/libnccl.so.2")
ENVIRONMENT = {"FAKE_GPU": GPU, "FAKE_GPU_DEVICES": GPUS, "FAKE_GPU_KERNELS": f"{FOLDER}/fake-kernels.so",
               "LD_LIBRARY_PATH": f"{FOLDER}/gpu:{FOLDER}/nccl"}
DROP_IN = "/etc/systemd/system/gradsyncd@.service.d/fakes.conf"
# A real GPU is none of the service's processes: it goes on for a moment when a daemon is killed.
UNIT = f"""[Service]
Environment={" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())}
ReadWritePaths={GPU}
KillMode=process
"""


def install(machine, build):
    """Installs the files of a machine with GPUs, and a drop-in by which services find them."""
    for name in FILES:
        target = machine.root / FOLDER.lstrip("/") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / "tests/fakes" / name, target)
    machine.write(DROP_IN, UNIT)


def clear(shared):
    """GPUs on which nothing has run yet."""
    folder = shared / "gpu"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)


def broken_rules(shared):
    log = shared / "gpu/log"
    return log.read_text("utf-8") if log.exists() else ""
