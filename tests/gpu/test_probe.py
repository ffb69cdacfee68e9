# SPDX-License-Identifier: Apache-2.0
"""The probe without a GPU: rows, deadlines, crashes, arguments; and each fact's question, on the fake GPU."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from conftest import PATIENT, TREE
from test_fake import wait_until

pytestmark = pytest.mark.cuda

# How calls of the driver fail, see tests/fakes/gpu/gpu.h.
HANGS, CRASHES, DOES_NOTHING = -1, -2, -3

# The fake GPU's answer to each fact. A pattern stands for an answer that is a figure.
FIGURE = re.compile(r"\d+(\.\d+)? (GB/s|us)")
KILLED = re.compile(r"no|yes, (\d+\.\d\d ms)")
TURNS = re.compile(r"at once|in turns( of \d+\.\d+ ms)?|one after the other")
ANSWERS = {
    "driver": {"start": "yes"},
    "vmm": {"same_uid": "yes", "other_uid": "yes", "fstat": "yes", "wrong_size": "yes", "touch_beyond": "yes"},
    "ipc": {"same_uid": "yes", "other_uid": "no", "base_offset": "yes", "neighbour": "yes", "exporter_frees_first": "yes"},
    "wait": {"cpu_store": "yes", "event_seen": "yes", "event_releases": "yes"},
    "slices": {"turns": TURNS, "launch": FIGURE},
    "kill": {"exporter": KILLED, "importer": KILLED, "queued": KILLED},
    "nccl": {"window": "yes", "two_ranks": "yes", "revoked": "yes", "peer_killed": "yes"},
    "speed": {"copy": FIGURE, "launch": FIGURE, "event": FIGURE},
}
SPINS = {"kill", "nccl", "slices", "speed", "wait"}     # for seconds
NOT_TWICE = {"machine", "library.torch", "library.nccl", "mps.control", "fault.neighbour"}


def names(probe, *arguments):
    done = subprocess.run(probe.command("--list", *arguments), capture_output=True, text=True, check=True)
    return done.stdout.split()


def matches(wanted, answer):
    return wanted.fullmatch(answer) if isinstance(wanted, re.Pattern) else wanted == answer


def group(name):
    return pytest.param(name, marks=[pytest.mark.heavy] if name in SPINS else [])


def no_write_exec(row):
    """Whether this kernel can harden processes as some facts ask. Linux before 6.3 cannot, and the row says
    so."""
    if row["answer"] == "skipped" and "PR_SET_MDWE" in row["detail"]:
        return False
    return True


def test_the_program_needs_libc_alone(program):
    """So that it runs on a machine on which nothing was installed. A sanitizer brings its own libraries."""
    header = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", header)
    sanitized = any(name.startswith(("libasan", "libtsan", "libubsan")) for name in needed)
    assert needed and (sanitized or needed == ["libc.so.6"])
    assert sanitized or program.stat().st_size < 1 << 20


@pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no ptxas")
@pytest.mark.parametrize("card", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_kernels_assemble(probe, card):
    text = subprocess.run(probe.command("--kernels"), capture_output=True, check=True).stdout
    source, object_file = probe.scratch / "kernels.ptx", probe.scratch / "kernels.cubin"
    source.write_bytes(text)
    subprocess.run(["ptxas", f"-arch={card}", "-o", object_file, source], check=True)
    assert object_file.stat().st_size > 0


def test_without_a_driver_it_says_so_in_one_line(probe):
    done = probe.run(libcuda="/nowhere/libcuda.so.1")
    assert (done.status, done.rows) == (77, [])
    assert len(done.stderr.splitlines()) == 1 and "no GPU" in done.stderr and "/nowhere/libcuda.so.1" in done.stderr


@pytest.mark.parametrize("error", ["100", "34"])
def test_without_a_device_it_says_so_in_one_line(probe, error):
    """No device, and the library that stands in for the driver where one only links."""
    done = probe.run(fail=f"cuInit:0:{error}")
    assert (done.status, done.rows) == (77, [])
    assert len(done.stderr.splitlines()) == 1 and "cuInit" in done.stderr


@pytest.mark.parametrize("how, answer, words", [
    ({"FAKE_GPU_FAIL": "cuInit:0:999"}, "error", "cuInit: CUDA_ERROR_UNKNOWN"),
    ({"FAKE_GPU_FAIL": "cuInit:0:998"}, "error", "cuInit: error 998"),
    ({"FAKE_GPU_LACKS": "cuInit"}, "error", "the driver has no cuInit"),
    ({"FAKE_GPU_FAIL": f"cuInit:0:{HANGS}"}, "hang", "machine in cuInit"),
    ({"FAKE_GPU_FAIL": f"cuInit:0:{CRASHES}"}, "crash", "signal 6 (Aborted) in cuInit"),
], ids=["refused", "refused-oddly", "missing", "hang", "crash"])
def test_a_gpu_that_does_not_answer_is_a_failure(probe, how, answer, words):
    done = probe.run("--deadline", "8" if answer == "hang" else "240", env=how)
    assert (done.status, done.facts) == (1, ["machine", "library.torch", "library.nccl", "mps.control", "probe"])
    assert done.answer("machine") == answer and words in done["machine"]["detail"]


def test_a_library_that_is_no_driver(probe):
    done = probe.run(libcuda="libc.so.6")
    assert done.status == 1 and "cuGetProcAddress_v2" in done["machine"]["detail"]


def test_the_first_row_names_the_machine(probe):
    """The name has characters that a row must escape."""
    name = b'Fake "100"\t\xe9'
    done = probe.run("--only", "nothing", *PATIENT, env={"FAKE_GPU_NAME": os.fsdecode(name)})
    assert (done.status, done.facts) == (0, ["machine", "probe"])
    row = done["machine"]
    assert row["answer"] == name.decode("latin-1")
    for words in ("UUID GPU-fafafafa-fafa-fafa-fafa-fafafafafa00", "driver unknown (CUDA ", f"kernel Linux {os.uname().release}",
                  "runtime ", f"uid {os.geteuid()}", "memory 8.0 GiB"):
        assert words in row["detail"], (words, row["detail"])
    assert done.lines[0].isascii()


def test_every_fact_is_listed_once_and_the_riskiest_last(probe):
    listed = names(probe)
    assert len(listed) == len(set(listed))
    assert listed[0] == "machine" and listed[-1] == "fault.neighbour"
    plain = [name for name in listed if not name.startswith("hardened:")]
    assert {f"hardened:{name}" for name in plain} - set(listed) == {f"hardened:{name}" for name in NOT_TWICE}
    assert {f"{area}.{name}" for area, facts in ANSWERS.items() for name in facts} == set(plain) - NOT_TWICE
    assert max(map(listed.index, ("hardened:slices.launch", "speed.copy"))) < listed.index("kill.exporter")
    assert listed.index("hardened:nccl.peer_killed") < listed.index("ipc.exporter_frees_first")


@pytest.mark.parametrize("area", [group(name) for name in ANSWERS])
def test_every_fact_is_answered(probe, area):
    """Once, and once more as a hardened unit would find it, in the order of the list."""
    done = probe.run(*PATIENT, "--only", f"{area}.*", "--only", f"hardened:{area}.*")
    assert done.status == 0, done.stderr
    assert done.facts == [*names(probe, "--only", f"{area}.*", "--only", f"hardened:{area}.*"), "probe"]
    for name, wanted in ANSWERS[area].items():
        assert matches(wanted, done.answer(f"{area}.{name}")), done[f"{area}.{name}"]
        hardened = done[f"hardened:{area}.{name}"]
        assert not no_write_exec(hardened) or matches(wanted, hardened["answer"]), hardened
    assert done.answer("probe") == "done"


def test_a_fault_is_the_last_question(probe):
    done = probe.run(*PATIENT, "--only", "fault.*")
    assert done.facts == ["machine", "fault.neighbour", "probe"]
    assert done.answer("fault.neighbour") == "yes" and "it had counted to" in done["fault.neighbour"]["detail"] and "CUDA_ERROR_ILLEGAL_ADDRESS" in done["fault.neighbour"]["detail"]


def test_rows_are_kept_where_out_says(probe):
    out = probe.scratch / "rows"
    done = probe.run(*PATIENT, "--only", "vmm.fstat", "--out", out)
    assert done.status == 0 and out.read_text().splitlines() == done.lines
    probe.run(*PATIENT, "--only", "vmm.fstat", "--out", out)
    assert len(out.read_text().splitlines()) == 2 * len(done.lines)


def test_a_row_is_written_before_the_next_question(probe):
    out = probe.scratch / "rows"
    process = probe.start("--only", "vmm.*", "--deadline", "600", "--seconds", "3000", "--out", out,
                          fail=f"cuMemCreate:0:{HANGS}")
    assert '"machine"' in process.stdout.readline()
    assert [line.startswith('{"fact": "machine"') for line in out.read_text().splitlines()] == [True]
    process.kill()
    process.communicate()


@pytest.mark.parametrize("call, how, answer, detail", [
    ("cuMemExportToShareableHandle", HANGS, "hang",
     r'vmm\.same_uid in {} for \d+\.\d s, vmm\.importer in waiting for "memory"'),
    ("cuMemImportFromShareableHandle", HANGS, "hang", r"vmm\.importer in {} for"),
    ("cuMemCreate", CRASHES, "crash", r"signal 6 \(Aborted\) in {}"),
    ("cuMemImportFromShareableHandle", CRASHES, "crash",
     r"vmm\.importer was killed by signal 6 \(Aborted\) in {}"),
], ids=["hang", "peer-hangs", "crash", "peer-crashes"])
def test_a_call_that_does_not_return_is_an_answer(probe, call, how, answer, detail):
    """The answer names the process and the call, and the probe asks the next question."""
    done = probe.run(*(("--deadline", "8") if answer == "hang" else PATIENT), "--only", "vmm.same_uid",
                     "--only", "ipc.same_uid", fail=f"{call}:0:{how}")
    assert done.status == 0 and done.answer("vmm.same_uid") == answer and done.answer("ipc.same_uid") == "yes"
    assert re.search(detail.format(call), done["vmm.same_uid"]["detail"]), done["vmm.same_uid"]


def test_a_call_that_is_refused_where_it_should_not_be(probe):
    done = probe.run(*PATIENT, "--only", "vmm.same_uid", "--only", "vmm.fstat", fail="cuMemCreate:0:801")
    for fact in ("vmm.same_uid", "vmm.fstat"):
        assert done.answer(fact) == "error" and f"{fact}: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED" in done[fact]["detail"]


def test_a_peer_whose_call_is_refused(probe):
    done = probe.run(*PATIENT, "--only", "wait.cpu_store", fail="cuMemHostRegister:0:1")
    assert done.answer("wait.cpu_store") == "error"
    assert "cuMemHostRegister: CUDA_ERROR_INVALID_VALUE" in done["wait.cpu_store"]["detail"]


@pytest.mark.parametrize("fact, fail, answer", [
    ("wait.cpu_store", f"cuStreamWaitValue64:0:{DOES_NOTHING}", "no"),
    ("wait.event_seen", f"cuStreamWaitValue64:0:{DOES_NOTHING}", "no"),
    ("wait.event_releases", f"cuStreamWaitEvent:0:{DOES_NOTHING}", "no"),
    ("ipc.same_uid", "cuIpcOpenMemHandle:0:1", "no"),
    ("vmm.same_uid", "cuMemImportFromShareableHandle:0:1", "no"),
    ("vmm.other_uid", "cuMemImportFromShareableHandle:0:1", "no"),
    ("ipc.base_offset", "cuIpcGetMemHandle:0:1", "no"),
])
def test_what_the_driver_does_is_the_answer(probe, fact, fail, answer):
    assert probe.run(*PATIENT, "--only", fact, fail=fail).answer(fact) == answer


def test_a_mapping_larger_than_the_memory_is_an_answer(probe):
    done = probe.run(*PATIENT, "--only", "vmm.wrong_size", "--only", "vmm.touch_beyond",
                     env={"FAKE_GPU_LARGE_MAPS": "1"})
    assert done.answer("vmm.wrong_size") == done.answer("vmm.touch_beyond") == "no"
    assert "reading its last word: success" in done["vmm.touch_beyond"]["detail"]


@pytest.mark.heavy
@pytest.mark.parametrize("fact", ["kill.exporter", "kill.importer"])
def test_writes_that_go_on_after_a_kill_are_seen(probe, fact):
    """In both kinds of memory, after every sign that the process is gone."""
    done = probe.run(*PATIENT, "--only", fact, env={"FAKE_GPU_LATE": "2000000", "FAKE_GPU_MPS": "1"})
    assert KILLED.fullmatch(done.answer(fact))[1], done[fact]
    seen = re.findall(r"(older than the driver|younger one|pidfd) after \S+ ms, writes for \S+ ms after it \(host memory too, "
                      r"device memory too\)", done[fact]["detail"])
    assert seen == ["older than the driver", "younger one", "pidfd"] * 3, done[fact]


@pytest.mark.heavy
def test_after_a_kill_nothing_is_written(probe):
    """The kernel has time to be stopped before it writes again."""
    done = probe.run(*PATIENT, "--only", "kill.exporter",
                     env={"FAKE_PROBE_PACE": "3000", "FAKE_GPU_LATE": "0", "FAKE_GPU_MPS": "1"})
    assert done.answer("kill.exporter") == "no"
    assert done["kill.exporter"]["detail"].count("no write after it") == 9


def test_functions_that_the_driver_lacks_are_named(probe):
    done = probe.run(*PATIENT, "--only", "wait.cpu_store", "--only", "vmm.fstat",
                     env={"FAKE_GPU_LACKS": "cuStreamWaitValue64,cuIpcGetEventHandle"})
    assert "does not have cuIpcGetEventHandle as of CUDA 4.1, cuStreamWaitValue64 as of CUDA 11.7" in done["machine"]["detail"]
    assert done.answer("wait.cpu_store") == "error" and "the driver has no cuStreamWaitValue64" in done["wait.cpu_store"]["detail"]
    assert done.answer("vmm.fstat") == "yes"


def test_what_hangs_takes_its_own_time_only(probe):
    """The rest of its section is left out, or gets too little, and those after it have theirs."""
    done = probe.run("--seconds", "20", "--only", "vmm.same_uid", "--only", "vmm.fstat", "--only", "vmm.wrong_size",
                     "--only", "fault.neighbour", fail=f"cuMemGetAllocationGranularity:0:{HANGS}")
    for fact in ("vmm.same_uid", "vmm.fstat", "vmm.wrong_size"):
        assert done.answer(fact) == "skipped" and "out of time" in done[fact]["detail"]
    assert "no answer within" in done["vmm.same_uid"]["detail"] and done["vmm.wrong_size"]["detail"] == "out of time"
    assert "no answer within" in done["fault.neighbour"]["detail"]
    assert done.answer("probe") == "done" and "4 skipped, 0 ended in" in done["probe"]["detail"]


def test_where_ended_children_are_ignored(probe):
    """A disposition that exec keeps: nohup and some services leave it so."""
    done = probe.run(*PATIENT, "--only", "vmm.same_uid", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.answer("vmm.same_uid") == "yes" and "did not end" not in done["vmm.same_uid"]["detail"]


def test_hardened_facts_have_no_new_privileges_and_no_memory_to_write_code_to(probe):
    done = probe.run(*PATIENT, "--only", "*driver.start", "--only", "hardened:vmm.fstat",
                     env={"FAKE_GPU_WRITES_CODE": "1"})
    assert done.answer("driver.start") == "yes"
    hardened = done["hardened:driver.start"]
    if no_write_exec(hardened):
        assert done.answer("hardened:vmm.fstat") == "yes", "what needs no kernel does not depend on compiling one"
        assert hardened["answer"] == "error" and "cuModuleLoadData: CUDA_ERROR_OPERATING_SYSTEM" in hardened["detail"]


def wait_for(condition, what):
    """The condition's value once it is true."""
    found = []
    wait_until(lambda: found.append(condition()) or found[-1], what)
    return found[-1]


def test_hardened_processes_are_so_from_their_first_instruction(probe):
    """The fact's own and its peer's, and neither outlives the probe."""
    process = probe.start("--only", "hardened:vmm.wrong_size", "--deadline", "600", "--seconds", "3000",
                          fail=f"cuDevicePrimaryCtxRetain:0:{HANGS}")
    roles = wait_for(lambda: (found := [pid for pid, line in probe.processes() if any("vmm." in word for word in line[1:3])])[1:] and found,
                     "two roles")
    for pid in roles:
        assert re.search(r"^NoNewPrivs:\s+1$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    process.kill()
    process.communicate()
    wait_for(lambda: probe.processes() == [], "all to end")


def test_who_is_said_to_be_killed_is(probe):
    assert "nccl.rank was killed" in probe.run(*PATIENT, "--only", "nccl.peer_killed")["nccl.peer_killed"]["detail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_other_user_has_nothing_of_root(probe):
    process = probe.start("--only", "vmm.other_uid", "--deadline", "600", "--seconds", "3000", "--uid", "4711",
                          fail=f"cuMemImportFromShareableHandle:0:{HANGS}")
    found = wait_for(lambda: [pid for pid, line in probe.processes() if "vmm.importer" in line[1:3]], "the importer")
    status = pathlib.Path(f"/proc/{found[0]}/status").read_text()
    process.kill()
    process.communicate()
    assert re.search(r"^Uid:(\s+4711){4}$", status, re.M) and re.search(r"^Gid:(\s+4711){4}$", status, re.M)
    assert re.search(r"^Groups:\s*$", status, re.M)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_needs_root(probe):
    done = probe.run(*PATIENT, "--only", "vmm.*_uid", user=65534, group=65534, extra_groups=[])
    assert done.answer("vmm.same_uid") == "yes"
    assert done.answer("vmm.other_uid") == "skipped" and "only root" in done["vmm.other_uid"]["detail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_other_user_is_chosen(probe):
    done = probe.run(*PATIENT, "--only", "vmm.other_uid", "--uid", "4711")
    assert done.answer("vmm.other_uid") == "yes" and "importer uid 4711" in done["vmm.other_uid"]["detail"]


GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"
NVIDIA = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder)\nGCC version: 13\n"


def machine(probe, files):
    root = probe.scratch / "root"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_failures_under_a_kernel_in_user_space_decide_nothing(probe):
    """Answers that something works are as good as elsewhere."""
    root = machine(probe, {"proc/version": GVISOR})
    done = probe.run(*PATIENT, "--root", root, "--only", "vmm.same_uid", "--only", "vmm.fstat", "--only", "ipc.*_uid",
                     fail=f"cuMemImportFromShareableHandle:0:{CRASHES},cuIpcOpenMemHandle:0:1")
    assert "runtime gVisor" in done["machine"]["detail"] and "kernel Linux 4.4.0" in done["machine"]["detail"]
    for fact, was in (("vmm.same_uid", "crash"), ("ipc.same_uid", "no"), ("ipc.other_uid", "no")):
        assert done.answer(fact) == "undecided"
        assert done[fact]["detail"].startswith(f"{was}, but a user-space kernel answered, so this decides nothing: ")
    assert done.answer("vmm.fstat") == "yes"
    good = probe.run(*PATIENT, "--root", root, "--only", "ipc.neighbour")
    assert good.answer("ipc.neighbour") == "undecided", "what is undefined is not this kernel's to say"
    late = probe.run("--seconds", "10", "--root", root, "--only", "kill.exporter", fail=f"cuMemGetAllocationGranularity:0:{HANGS}")
    assert late.answer("kill.exporter") == "skipped", "what was not asked is not undecided"


@pytest.mark.parametrize("files, words", [
    ({"proc/driver/nvidia/version": NVIDIA}, "driver 580.159.04, open kernel module (CUDA"),
    ({"proc/driver/nvidia/version": NVIDIA.replace("Open ", "")}, "driver 580.159.04 (CUDA"),
    ({".dockerenv": ""}, "runtime docker;"),
    ({"run/.containerenv": ""}, "runtime podman;"),
    ({"run/systemd/container": "systemd-nspawn\n"}, "runtime systemd-nspawn;"),
    ({"proc/1/environ": "PATH=/bin\0container=lxc\0"}, "runtime lxc;"),
    ({"proc/1/environ": "container=oci\0HOME=/\0"}, "runtime oci;"),
    ({"proc/1/cgroup": "0::/kubepods/burstable/pod7\n"}, "runtime kubepods;"),
    ({"proc/cpuinfo": "flags : fpu hypervisor lahf_lm\n"}, "runtime virtual machine;"),
    ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "runtime none found, QEMU;"),
    ({}, "driver unknown (CUDA"),
    ({}, "kernel unknown; runtime none found;"),
])
def test_what_files_say_about_the_machine(probe, files, words):
    (probe.scratch / "root").mkdir()
    done = probe.run(*PATIENT, "--only", "nothing", "--root", machine(probe, files))
    assert words in done["machine"]["detail"]


def test_torch_and_nccl_are_found_where_python_has_them(probe):
    """In a virtual environment that is on the PATH, and among the system's packages."""
    root = machine(probe, {
        "usr/lib/python3.12/site-packages/torch/version.py": "from typing import Optional\n__version__ = '2.11.0+cu130'\n",
        "usr/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2": "",
        "opt/torch/.venv/lib/python3.12/site-packages/torch/version.py": "nothing of use\n",
    })
    venv = machine(probe, {"venv/bin/python3": "", "venv/lib/python3.11/site-packages/torch/version.py": '__version__ = "2.13.0"\n'}) / "venv"
    (venv / "bin/python3").chmod(0o755)
    shutil.copy(probe.nccl, root / "usr/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2")
    done = probe.run(*PATIENT, "--root", root, "--only", "library.*", nccl=False,
                     env={"PATH": f"{venv}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(probe.driver.parent)})
    versions = done.answer("library.torch").split(", ")
    assert versions[0] == "2.13.0" and versions[-2:] == ["2.11.0+cu130", "unknown"], versions
    assert f"2.11.0+cu130 {root}/usr/lib/python3.12/site-packages/torch/version.py" in done["library.torch"]["detail"]
    assert f"2.28.9 {root}/usr/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2" in done["library.nccl"]["detail"]


def test_a_library_that_is_no_nccl(probe):
    done = probe.run(*PATIENT, "--only", "library.nccl", "--only", "nccl.window", "--nccl", "libc.so.6", nccl=False,
                     env={"LD_LIBRARY_PATH": "/nowhere"})
    assert "libc.so.6 has no ncclGetVersion" in done["library.nccl"]["detail"]


def test_nccl_with_two_ranks_that_share_a_host_is_refused(probe):
    """The fake NCCL refuses two ranks of one host, as NCCL does: so the probe has told them apart."""
    done = probe.run(*PATIENT, "--only", "nccl.two_ranks")
    assert done.answer("nccl.two_ranks") == "yes" and "different NCCL_HOSTID" in done["nccl.two_ranks"]["detail"]


def test_mps_is_looked_for_on_the_path(probe):
    tool = probe.scratch / "nvidia-cuda-mps-control"
    tool.write_text("")
    tool.chmod(0o755)
    done = probe.run(*PATIENT, "--only", "mps.*", env={"PATH": f"{probe.scratch}:{os.environ['PATH']}", "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"})
    assert done.answer("mps.control") == "yes" and str(tool) in done["mps.control"]["detail"]
    assert "pipe directory /nowhere: not there" in done["mps.control"]["detail"]


@pytest.mark.parametrize("arguments, words", [
    (["--what"], "unrecognized option '--what'"),
    (["word"], "what is 'word'?"),
    (["--seconds", "0"], "--seconds 0: not a number of seconds"),
    (["--seconds", "soon"], "--seconds soon"),
    (["--deadline", "nan"], "--deadline nan"),
    (["--deadline", "-1"], "--deadline -1"),
    (["--deadline"], "requires an argument"),
    (["--uid", "0"], "--uid 0: not a uid other than root's"),
    (["--uid", "99999999999"], "--uid 99999999999"),
    (["--out", "/nowhere/rows"], "--out /nowhere/rows: No such file"),
    (["--only", "x"] * 33, "--only x: too many patterns"),
    (["--nccl", "x"] * 9, "--nccl x: too many libraries"),
    (["--role", "vmm.importer"], "belong together"),
    (["--place", "0"], "belong together"),
    (["--role", "vmm.importer", "--board", "99", "--place", "0"], "--board 99: not an open descriptor"),
    (["--role", "vmm.importer", "--board", "zero", "--place", "0"], "--board zero: not an open descriptor"),
    (["--role", "vmm.importer", "--board", "1", "--place", "0"], "--board 1: not an open descriptor"),
    (["--role", "vmm.importer", "--channel", "99"], "--channel 99: not an open descriptor"),
    (["--role", "vmm.importer", "--place", "-1"], "--place -1: not the number of a place"),
])
def test_wrong_arguments(probe, arguments, words):
    done = probe.run(*arguments, nccl=False)
    assert (done.status, done.rows) == (2, [])
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def role(probe, name, place, size, channel):
    """Starts a role as the probe would, with a board of that size, which is its channel, too. Returns (status, stderr)."""
    board = os.memfd_create("board", 0)
    os.ftruncate(board, size)
    command = probe.command("--role", name, "--board", str(board), "--place", place, *(["--channel", str(board)] if channel else []))
    done = subprocess.run(command, pass_fds=[board], capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL)
    os.close(board)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name, peer", [("vmm.same_uid", False), ("vmm.importer", True), ("nccl.rank", True), ("holder", False)])
def test_a_role_checks_what_it_is_given(probe, name, peer):
    assert role(probe, "no.such", "0", 1 << 16, peer) == (2, "probe: --role no.such: there is no such role\n")
    words = "is a peer's and needs a --channel" if peer else "is not a peer's and has no --channel"
    assert role(probe, name, "0", 1 << 16, not peer) == (2, f"probe: --role {name}: {words}\n")
    for place, size in (("99", 1 << 16), ("0", 16)):
        status, error = role(probe, name, place, size, peer)
        assert status == 2 and f"--place {place}: no such place on a board" in error


def test_help_lists_the_options(probe):
    done = subprocess.run(probe.command("--help"), capture_output=True, text=True, check=True)
    for option in ("--list", "--only", "--seconds", "--deadline", "--out", "--uid", "--libcuda", "--nccl", "--root", "--kernels", "77"):
        assert option in done.stdout


def script(probe, *arguments, **env):
    """tests/gpu/probe.sh, on the fake GPU unless told otherwise."""
    done = subprocess.run(["sh", TREE / "tests/gpu/probe.sh", *arguments], capture_output=True, text=True, timeout=900, check=False,
                          stdin=subprocess.DEVNULL, env={**probe.environment(), **env})
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_the_script_runs_the_program_and_keeps_its_rows(probe):
    status, lines, stderr = script(probe, *probe.command("--only", "vmm.fstat"), OUT=str(probe.scratch))
    assert (status, stderr) == (0, "") and len(lines) == 3
    assert (probe.scratch / "probe.jsonl").read_text().splitlines() == lines


def test_the_script_finds_the_program_of_a_build(probe, build):
    status, lines, stderr = script(probe, "--libcuda", "/nowhere", GRADSYNC_BUILD=str(build))
    assert (status, lines, len(stderr.splitlines())) == (77, [], 1)


def test_the_script_says_what_to_build(probe):
    status, lines, stderr = script(probe, GRADSYNC_BUILD="/nowhere")
    assert (status, lines) == (1, []) and "ninja -C build tests/gpu/probe" in stderr
    status, lines, stderr = script(probe, "/nowhere/probe")
    assert status == 1 and "/nowhere/probe" in stderr


def test_the_script_stops_a_program_that_forgets_the_time(probe):
    """In at most six minutes: here with another clock, and a program that never looks at it."""
    stuck, copy = probe.scratch / "stuck", probe.scratch / "probe.sh"
    stuck.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do :; done\n")
    stuck.chmod(0o755)
    text = (TREE / "tests/gpu/probe.sh").read_text()
    limits = dict(re.findall(r"^SECONDS_(\w+)=(\d+)", text, re.M))
    assert int(limits["LIMIT"]) + int(limits["GRACE"]) + 5 <= 360
    copy.write_text(re.sub(r"^(SECONDS_\w+)=\d+", r"\1=1", text, flags=re.M))
    done = subprocess.run(["sh", copy, stuck], capture_output=True, text=True, timeout=600, check=False, env=probe.environment())
    assert done.returncode == 1 and "stopped after 2 s" in done.stderr
