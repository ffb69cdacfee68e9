# SPDX-License-Identifier: Apache-2.0
"""The probe without a GPU: rows, deadlines, crashes, arguments; and each fact's question, on the fake GPU."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from conftest import PATIENT
from test_fake import wait_until

# How calls of the driver fail, see tests/fakes/gpu/gpu.h.
HANGS, CRASHES, DOES_NOTHING = -1, -2, -3

# The fake GPU's answer to each fact. A pattern stands for an answer that is a figure.
FIGURE = re.compile(r"\d+\.\d us")
KILLED = re.compile(r"no|yes, (\d+\.\d\d ms)")
TURNS = re.compile(r"at once|in turns( of \d+\.\d+ ms)?|one after the other|skipped")
ANSWERS = {
    "driver": {"start": "yes"},
    "vmm": {"same_uid": "yes", "other_uid": "yes", "wrong_size": "yes", "touch_beyond": "yes"},
    "ipc": {"same_uid": "yes", "other_uid": "no", "neighbour": "yes", "exporter_frees_first": "yes"},
    "wait": {"cpu_store": "yes"},
    "slices": {"turns": TURNS, "launch": FIGURE},
    "kill": {"exporter": KILLED, "importer": KILLED, "queued": KILLED},
    "nccl": {"window": "yes", "two_ranks": "yes", "revoked": "yes"},
}
SPINS = {"kill", "nccl", "slices", "wait"}     # for seconds
NOT_TWICE = {"machine", "mps.control", "fault.neighbour"}


def names(probe, *arguments):
    done = subprocess.run([probe.program, "--list", *arguments], capture_output=True, text=True, check=True)
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


def test_the_program_needs_libc_alone(probe):
    """So that it runs on a machine on which nothing was installed. A sanitizer brings its own libraries."""
    header = subprocess.check_output(["readelf", "-d", probe.program], text=True)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", header)
    sanitized = any(name.startswith(("libasan", "libtsan", "libubsan")) for name in needed)
    assert needed and (sanitized or needed == ["libc.so.6"])
    assert sanitized or probe.program.stat().st_size < 1 << 20


@pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no ptxas")
@pytest.mark.parametrize("card", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_kernels_assemble(probe, card):
    text = subprocess.run([probe.program, "--kernels"], capture_output=True, check=True).stdout
    source, object_file = probe.scratch / "kernels.ptx", probe.scratch / "kernels.cubin"
    source.write_bytes(text)
    subprocess.run(["ptxas", f"-arch={card}", "-o", object_file, source], check=True)
    assert object_file.stat().st_size > 0


@pytest.mark.parametrize("how, words", [
    ({"LD_LIBRARY_PATH": "/nowhere"}, "there is no NVIDIA driver: libcuda.so.1"),
    ({"FAKE_GPU_FAIL": "cuInit:0:100"}, "CUDA_ERROR_NO_DEVICE"),
    ({"FAKE_GPU_FAIL": "cuInit:0:34"}, "CUDA error 34"),    # what stands for the driver where one only links
])
def test_without_a_gpu_it_says_so_in_one_line(probe, how, words):
    done = probe.run(env=how)
    assert (done.status, done.rows) == (77, [])
    assert len(done.stderr.splitlines()) == 1 and "no GPU" in done.stderr and words in done.stderr


@pytest.mark.parametrize("how, answer, words", [
    ({"FAKE_GPU_FAIL": "cuInit:0:999"}, "error", "finds no GPU that it can use: CUDA_ERROR_UNKNOWN"),
    ({"FAKE_GPU_LACKS": "cuMemCreate"}, "error", "lacks cuMemCreate"),
    ({"FAKE_GPU_FAIL": f"cuInit:0:{HANGS}"}, "hang", "machine in the driver's start"),
    ({"FAKE_GPU_FAIL": f"cuInit:0:{CRASHES}"}, "crash", "signal 6 (Aborted) in the driver's start"),
], ids=["refused", "missing", "hang", "crash"])
def test_a_gpu_that_does_not_answer_is_a_failure(probe, how, answer, words):
    done = probe.run("--deadline", "8" if answer == "hang" else "240", env=how)
    assert (done.status, done.facts) == (1, ["machine", "mps.control", "probe"])
    assert done.answer("machine") == answer and words in done["machine"]["detail"]


def test_the_first_row_names_the_machine(probe):
    """The name has characters that a row must escape."""
    name = b'Fake "100"\t\xe9'
    done = probe.run("--only", "nothing", *PATIENT, env={"FAKE_GPU_NAME": os.fsdecode(name)})
    assert (done.status, done.facts) == (0, ["machine", "probe"])
    row = done["machine"]
    assert row["answer"] == name.decode("latin-1")
    for words in ("UUID GPU-fafafafa-fafa-fafa-fafa-fafafafafa00", "CUDA 13.0; runtime ",
                  f"uid {os.geteuid()}", "memory 8.0 GiB"):
        assert words in row["detail"], (words, row["detail"])
    assert done.lines[0].isascii()


def test_every_fact_is_listed_once_and_the_riskiest_last(probe):
    listed = names(probe)
    assert len(listed) == len(set(listed))
    assert listed[0] == "machine" and listed[-1] == "fault.neighbour"
    plain = [name for name in listed if not name.startswith("hardened:")]
    assert {f"hardened:{name}" for name in plain} - set(listed) == {f"hardened:{name}" for name in NOT_TWICE}
    assert {f"{area}.{name}" for area, facts in ANSWERS.items() for name in facts} == set(plain) - NOT_TWICE
    assert listed.index("hardened:slices.launch") < listed.index("kill.exporter")
    assert listed.index("hardened:nccl.revoked") < listed.index("ipc.exporter_frees_first")


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
    detail = done["fault.neighbour"]["detail"]
    assert done.answer("fault.neighbour") == "yes"
    assert "it had counted to" in detail and "CUDA_ERROR_ILLEGAL_ADDRESS" in detail


def test_a_row_is_written_before_the_next_question(probe):
    process = probe.start("--only", "vmm.*", "--deadline", "600", "--seconds", "3000",
                          fail=f"cuMemCreate:0:{HANGS}")
    assert process.stdout.readline().startswith('{"fact": "machine"')
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
    done = probe.run(*PATIENT, "--only", "vmm.same_uid", "--only", "vmm.touch_beyond",
                     fail="cuMemCreate:0:801")
    for fact in ("vmm.same_uid", "vmm.touch_beyond"):
        assert done.answer(fact) == "error"
        assert f"{fact}: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED" in done[fact]["detail"]


def test_a_peer_whose_call_is_refused(probe):
    done = probe.run(*PATIENT, "--only", "wait.cpu_store", fail="cuMemHostRegister:0:1")
    assert done.answer("wait.cpu_store") == "error"
    assert "cuMemHostRegister: CUDA_ERROR_INVALID_VALUE" in done["wait.cpu_store"]["detail"]


@pytest.mark.parametrize("fact, fail, answer", [
    ("wait.cpu_store", f"cuStreamWaitValue64:0:{DOES_NOTHING}", "no"),
    ("ipc.same_uid", "cuIpcOpenMemHandle:0:1", "no"),
    ("vmm.same_uid", "cuMemImportFromShareableHandle:0:1", "no"),
    ("vmm.other_uid", "cuMemImportFromShareableHandle:0:1", "no"),
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
    seen = re.findall(r"(older than the driver|younger one|pidfd) after \S+ ms, writes for \S+ ms after it "
                      r"\(host memory too, device memory too\)", done[fact]["detail"])
    assert seen == ["older than the driver", "younger one", "pidfd"] * 3, done[fact]


@pytest.mark.heavy
def test_after_a_kill_nothing_is_written(probe):
    """The kernel has time to be stopped before it writes again."""
    done = probe.run(*PATIENT, "--only", "kill.exporter",
                     env={"FAKE_PROBE_PACE": "3000", "FAKE_GPU_LATE": "0", "FAKE_GPU_MPS": "1"})
    assert done.answer("kill.exporter") == "no"
    assert done["kill.exporter"]["detail"].count("no write after it") == 9


def test_functions_that_the_driver_lacks_are_named(probe):
    done = probe.run(*PATIENT, "--only", "wait.cpu_store", "--only", "vmm.wrong_size",
                     env={"FAKE_GPU_LACKS": "cuStreamWaitValue64,cuStreamWriteValue64"})
    assert "does not have cuStreamWaitValue64 as of CUDA 11.7, cuStreamWriteValue64 as of CUDA 11.7" in \
        done["machine"]["detail"]
    assert done.answer("wait.cpu_store") == "error"
    assert "the driver has no cuStreamWaitValue64" in done["wait.cpu_store"]["detail"]
    assert done.answer("vmm.wrong_size") == "yes"


def test_what_hangs_takes_its_own_time_only(probe):
    """The rest of its section is left out, or gets too little, and those after it have theirs."""
    done = probe.run("--seconds", "20", "--only", "vmm.same_uid", "--only", "vmm.wrong_size",
                     "--only", "ipc.same_uid", "--only", "fault.neighbour",
                     fail=f"cuDevicePrimaryCtxRetain:0:{HANGS}")
    for fact in ("vmm.same_uid", "vmm.wrong_size", "ipc.same_uid"):
        assert done.answer(fact) == "skipped" and "out of time" in done[fact]["detail"]
    assert "no answer within" in done["vmm.same_uid"]["detail"]
    assert done["ipc.same_uid"]["detail"] == "out of time"
    assert "no answer within" in done["fault.neighbour"]["detail"]
    assert done.answer("probe") == "done" and "4 skipped, 0 ended in" in done["probe"]["detail"]


def test_where_ended_children_are_ignored(probe):
    """A disposition that exec keeps: nohup and some services leave it so."""
    done = probe.run(*PATIENT, "--only", "vmm.same_uid",
                     preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.answer("vmm.same_uid") == "yes" and "did not end" not in done["vmm.same_uid"]["detail"]


def test_hardened_facts_have_no_new_privileges_and_no_memory_to_write_code_to(probe):
    done = probe.run(*PATIENT, "--only", "*driver.start", "--only", "hardened:vmm.wrong_size",
                     env={"FAKE_GPU_WRITES_CODE": "1"})
    assert done.answer("driver.start") == "yes"
    hardened = done["hardened:driver.start"]
    if no_write_exec(hardened):
        assert done.answer("hardened:vmm.wrong_size") == "yes", "what needs no kernel does not compile one"
        assert hardened["answer"] == "error"
        assert "cuModuleLoadData: CUDA_ERROR_OPERATING_SYSTEM" in hardened["detail"]


def wait_for(condition, what):
    """The condition's value once it is true."""
    found = []
    wait_until(lambda: found.append(condition()) or found[-1], what)
    return found[-1]


def test_hardened_processes_are_so_from_their_first_instruction(probe):
    """The fact's own and its peer's, and neither outlives the probe."""
    process = probe.start("--only", "hardened:vmm.wrong_size", "--deadline", "600", "--seconds", "3000",
                          fail=f"cuDevicePrimaryCtxRetain:0:{HANGS}")
    def two():
        found = [pid for pid, name in probe.processes() if name.startswith("vmm.")]
        return found if len(found) == 2 else None
    for pid in wait_for(two, "two roles"):
        assert re.search(r"^NoNewPrivs:\s+1$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    process.kill()
    process.communicate()
    wait_for(lambda: probe.processes() == [], "all to end")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_other_user_has_nothing_of_root(probe):
    process = probe.start("--only", "vmm.other_uid", "--deadline", "600", "--seconds", "3000",
                          fail=f"cuMemImportFromShareableHandle:0:{HANGS}")
    found = wait_for(lambda: [pid for pid, name in probe.processes() if name == "vmm.importer"], "importer")
    status = pathlib.Path(f"/proc/{found[0]}/status").read_text()
    process.kill()
    process.communicate()
    assert re.search(r"^Uid:(\s+65534){4}$", status, re.M) and re.search(r"^Gid:(\s+65534){4}$", status, re.M)
    assert re.search(r"^Groups:\s*$", status, re.M)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_needs_root(probe):
    done = probe.run(*PATIENT, "--only", "vmm.*_uid", user=65534, group=65534, extra_groups=[])
    assert done.answer("vmm.same_uid") == "yes"
    assert done.answer("vmm.other_uid") == "skipped" and "only root" in done["vmm.other_uid"]["detail"]


GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"


def machine(probe, files):
    root = probe.scratch / "root"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_failures_under_a_kernel_in_user_space_decide_nothing(probe):
    """Answers that something works are as good as elsewhere."""
    root = machine(probe, {"proc/version": GVISOR})
    done = probe.run(*PATIENT, "--root", root, "--only", "vmm.same_uid", "--only", "driver.start",
                     "--only", "ipc.*_uid",
                     fail=f"cuMemImportFromShareableHandle:0:{CRASHES},cuIpcOpenMemHandle:0:1")
    assert "runtime gVisor" in done["machine"]["detail"]
    for fact, was in (("vmm.same_uid", "crash"), ("ipc.same_uid", "no"), ("ipc.other_uid", "no")):
        assert done.answer(fact) == "undecided"
        assert done[fact]["detail"].startswith(
            f"{was}, but a user-space kernel answered, so this decides nothing: ")
    assert done.answer("driver.start") == "yes"
    good = probe.run(*PATIENT, "--root", root, "--only", "ipc.neighbour")
    assert good.answer("ipc.neighbour") == "undecided", "what is undefined is not this kernel's to say"
    late = probe.run("--seconds", "10", "--root", root, "--only", "kill.exporter",
                     fail=f"cuMemGetAllocationGranularity:0:{HANGS}")
    assert late.answer("kill.exporter") == "skipped", "what was not asked is not undecided"


@pytest.mark.parametrize("files, words", [
    ({"proc/cpuinfo": "flags : fpu hypervisor lahf_lm\n"}, "runtime virtual machine;"),
    ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "runtime none found, QEMU;"),
    ({}, "runtime none found;"),
])
def test_what_files_say_about_the_machine(probe, files, words):
    (probe.scratch / "root").mkdir()
    done = probe.run(*PATIENT, "--only", "nothing", "--root", machine(probe, files))
    assert words in done["machine"]["detail"]


def test_mps_is_looked_for_on_the_path(probe):
    tool = probe.scratch / "nvidia-cuda-mps-control"
    tool.write_text("")
    tool.chmod(0o755)
    done = probe.run(*PATIENT, "--only", "mps.*", env={"PATH": f"{probe.scratch}:{os.environ['PATH']}",
                                                       "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"})
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
    (["--only", "x"] * 33, "--only x: too many patterns"),
])
def test_wrong_arguments(probe, arguments, words):
    done = probe.run(*arguments)
    assert (done.status, done.rows) == (2, [])
    assert words in done.stderr and len(done.stderr.splitlines()) == 1
