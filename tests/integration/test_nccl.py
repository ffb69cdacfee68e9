# SPDX-License-Identifier: Apache-2.0
"""Jobs over several daemons with a GPU each, all of them fake, which exchange by NCCL, which is fake, too:
real daemons, links and members; kernels and collectives are operations of the fake GPU."""
import itertools
import os
import pathlib
import re

import pytest

import harness
from clusters import PATIENT, STAY, SWIFT, Cluster, members_of, opened, restart
from harness import wait_until
from teams import SHORT, Team, takes_state
from test_cli_doctor import Doctor
from test_cluster_statistics import check_statistics
from trainers import OK, ask, bring, crew, ended, fields, join, say, script, step, together

NCCL = "tests/fakes/nccl/libnccl.so.2"
FLOATS = ("a f32 5", "b f32 300 20", "c bf16 70000")


class GpuCluster(Cluster):
    """Daemon i serves GPU i."""

    def __init__(self, daemon, build, address, nodes=2, common=None, **options):
        self.gpus = 0
        common = {"nccl_library": build / NCCL, **(common or {})}
        super().__init__(daemon, build, address, nodes, common=common, **options)

    def add(self, device=None, **more):
        self.gpus += 1
        return super().add(device=device or f"cuda:{self.gpus - 1}", **more)


@pytest.fixture
def cluster(machine, nothing_left, daemon, build, scratch, monkeypatch):
    """cluster(nodes=2, **options) -> a GpuCluster. Members keep their gradients on their daemon's GPU."""
    monkeypatch.setenv("MEMBER_CUDA", "1")
    monkeypatch.setenv("FAKE_GPU_DEVICES", "4")

    def start(nodes=2, name="link", **options):
        return GpuCluster(daemon, build, f"unix:{scratch}/{name}", nodes, **options)
    return start


@pytest.mark.parametrize("nodes, world", [(2, 2), (2, 4), (4, 4)])
def test_averages(cluster, member, nodes, world):
    members = crew(members_of(cluster(nodes), member), None, world, params=FLOATS)
    for number in range(1, 6):
        assert step(members) == number
    together(members, "leave")


@pytest.mark.parametrize("nodes, reduce, dtype", [(2, "avg", "f32"), (3, "avg", "bf16"), (4, "sum", "f64")])
def test_statistics_of_all_ranks(cluster, member, nodes, reduce, dtype):
    """They go at the end of what is exchanged, from and to memory of the host."""
    check_statistics(members_of(cluster(nodes), member), reduce, dtype)


def test_collectives_beside_a_plan(cluster, member):
    """Their data lies in memory of the host, and goes by Gloo."""
    members = crew(members_of(cluster(2), member), None, 4)
    assert step(members) == 1
    for size in (0, 1, 1000, 300001):
        assert set(together(members, f"broadcast {size} 3")) == {"right"}
        assert set(together(members, f"allgather {size}")) == {"right"}
    assert set(together(members, "allreduce 70001 f64 max")) == {"right"}
    together(members, "barrier")
    assert step(members) == 2


# ---- who is lost ----

def communicators(it, name="team", nodes=None):
    return [node.job(name)["communicators"] for node in it.nodes[:nodes]]


def entered(members, generation):
    """All of them have heard of it."""
    for each in members:
        wait_until(lambda each=each: ask(each, "dispatch") == ""
                   and int(fields(ask(each, "place"))["generation"]) >= generation,
                   f"generation {generation}")


def again(members, step):
    """All of them synchronise, as after every loss."""
    for rest in together(members, f"sync {step}"):
        assert rest.startswith(f"step={step} value=1")


@pytest.mark.parametrize("library, by_older", [("libnccl.so.2", True), ("libnccl-plain.so.2", False)])
def test_the_job_shrinks_and_grows(cluster, member, build, monkeypatch, library, by_older):
    """A daemon whose only member is gone is left out, and comes back with another one: NCCL makes the
    communicators of those before where it can, so no daemon begins a second one; each has windows."""
    if by_older:
        monkeypatch.setenv("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2:3")
    it = cluster(3, settings=SHORT, times=SWIFT, common={"nccl_library": (build / NCCL).with_name(library)})
    team = Team(members_of(it, member, [0, 1, 2, 2]), None, world=3, least=2, ranks=False)
    assert team.step() == [1, 1, 1]
    before = communicators(it, nodes=2)
    team.kill(2).wait()
    team.members.pop()
    windows = ", with windows for small sums"
    part = f" as a part of the one before{windows}" if by_older else ""
    extension = f" as an extension of the one before{windows}" if by_older else ""
    for node in it.nodes[:2]:
        node.wait_log(f"job .*team.*: NCCL connects 2 nodes{part}, in ")
    entered(team.members, 3)
    again(team.members, 1)
    assert team.step() == [2, 2]
    assert communicators(it, nodes=2) == [number + 1 for number in before]
    peer, = it.nodes[0].job("team")["peers"]
    assert peer["transport"] == "P2P/CUMEM"
    abilities = it.nodes[0].status()["daemon"]["engine"]["abilities"]
    assert abilities.startswith("no register_buffer, ") != by_older
    new = team.fresh()
    assert fields(ask(new, team.join_line(2)))["rank"] == "2"
    for node in it.nodes[:2]:
        node.wait_log(f"job .*team.*: NCCL connects 3 nodes{extension}, in ")
    team.register(new)
    script(new, "state 100000 9", "plan")
    entered(team.members, 4)
    takes_state(new, team.members, 2)
    team.members.append(new)
    for number in range(3, 6):
        assert team.step() == [number] * 3
    assert communicators(it, nodes=2) == [number + 2 for number in before]
    assert {peer["transport"] for peer in it.nodes[0].job("team")["peers"]} == {"P2P/CUMEM"}


@pytest.mark.parametrize("orderly", [True, False])
def test_a_daemon_is_restarted_between_two_steps(cluster, member, orderly):
    it = cluster(settings=STAY)
    team = Team(members_of(it, member, [0, 1, 1, 1]), None, world=4)
    for number in range(1, 3):
        assert team.step() == [number] * 4
        restart(it.nodes[1], orderly)
    assert team.step() == [3] * 4
    assert [node.job("team")["void_steps"] for node in it.nodes] == [0, 0]


# ---- what cannot be ----

def test_min_of_floats_is_refused(cluster, member):
    members = opened(cluster(2), member, 0, 1)
    join(members, "least")
    together(members, "param a f32 10")
    for rest in together(members, "plan reduce=min", code="UNSUPPORTED"):
        assert "the min of f32 cannot be computed: NCCL hides" in rest, rest


def refusals(it, member, job="mixed"):
    """One member comes to each of the daemons; the first one waits. Returns the answer to the second."""
    first, second = opened(it, member, 0, 1)
    first.say(f"join name={job} world=2 rank=0")
    wait_until(lambda: it.nodes[0].job(job), "the first member waits")
    return second.ask(f"join name={job} world=2 rank=1")


def test_unequal_versions_are_refused(cluster, member):
    it = cluster(1)
    it.nodes.append(it.add(env={"FAKE_NCCL_VERSION": "22703"}))
    said = refusals(it, member)
    assert said.startswith("UNSUPPORTED ") and "by NCCL 2.27.3, and another one's by NCCL 2.28.9" in said


def test_gpus_and_cpus_are_not_mixed(cluster, member, monkeypatch):
    it = cluster(1)
    it.nodes.append(it.add(device="cpu"))
    monkeypatch.delenv("MEMBER_CUDA")
    said = refusals(it, member)
    assert said.startswith("UNSUPPORTED ") and "by Gloo, and another one's by NCCL 2.28.9" in said


def test_more_jobs_than_the_gpu_has_room_for_are_refused(cluster, member):
    it = cluster(1, common={"nccl_ctas": 32})  # of 132 multiprocessors
    first, second, third = opened(it, member, 0, 0, 0)
    ask(first, "join name=j0 world=1")
    ask(second, "join name=j1 world=1")
    said = ask(third, "join name=j2 world=1", "QUOTA")
    assert "this GPU has 2 jobs that span several daemons" in said
    ask(first, "leave")
    wait_until(lambda: not it.nodes[0].job("j0"), "its job to end")
    ask(third, "join name=j2 world=1")


@pytest.mark.parametrize("library, why", [
    ("nowhere.so", "NCCL cannot be loaded: .*nowhere.so"),
    ("libnccl-old.so.2", "is NCCL 2.17.0; 2.18.0 or newer is needed"),
    ("libnccl-lacking.so.2", "which is NCCL 2.28.9, lacks ncclCommSplit")])
def test_without_nccl_jobs_stay_on_their_daemon(cluster, member, build, library, why):
    it = cluster(1, common={"nccl_library": (build / NCCL).with_name(library)})
    it.nodes[0].wait_log(f"jobs stay on this node: .*{why}")
    assert re.search(why, it.nodes[0].status()["daemon"]["engine"]["missing"])
    one, = opened(it, member, 0)
    said = ask(one, "join name=alone world=1", "UNSUPPORTED")
    assert re.search(why, said) and "join with the scope 'host'" in said
    ask(one, "join name=alone world=1 scope=host")


def test_a_daemon_whose_nccl_does_not_end_begins_anew(cluster, member):
    """Its kernels would hold the GPU for ever: so it ends with a status of its own."""
    it = cluster(1, settings=STAY, times=PATIENT)      # a loss before the kill would end it as well
    it.nodes.append(it.add(env={"FAKE_NCCL_STUCK": "abort"}))
    team = Team(members_of(it, member), None, world=2)
    assert team.step() == [1, 1]
    it.nodes[1].expect_clean = False
    it.nodes[0].expect_clean = False
    harness.kill(it.nodes[0])
    assert it.nodes[1].program.process.wait(120) == 71
    assert "NCCL has not ended a communicator for 10000 ms" in it.nodes[1].log


# ---- what does not come about ----

def waiting(it, member, job="team"):
    """Two members, one with each daemon, whose job is to form."""
    members = opened(it, member, 0, 1)
    for rank, each in enumerate(members):
        each.say(f"join name={job} world=2 rank={rank}")
    return members


def steps_beside(it, member):
    """Makes a job of the first daemon alone. Returns a function that makes a step of it."""
    beside = crew(members_of(it, member, [0]), None, 1)
    numbers = itertools.count(1)

    def one_more():
        assert step(beside) == next(numbers)
    return one_more


def test_an_init_that_does_not_end_is_ended(cluster, member):
    """The daemon says so and tries again, and other jobs go on. The daemon that serves the GPU next
    connects."""
    it = cluster(1, settings=STAY)
    stuck = it.add(env={"FAKE_NCCL_STUCK": "init"}, build="2s")
    it.nodes.append(stuck)
    one_more = steps_beside(it, member)
    members = waiting(it, member)
    stuck.wait_log("job .*team.*: NCCL does not connect this node; not all of them came in time")
    one_more()
    harness.stop(stuck)
    stuck.env.clear()
    stuck.config.write_text(stuck.config.read_text().replace("build = 2s", ""))     # as long as it takes
    stuck.start()
    one_more()
    ended(members, OK)


def test_what_the_host_does_not_give_is_named(cluster, member):
    """Here it is NCCL that wants more of it, such as memory in /dev/shm: it says so, and is asked again."""
    it = cluster(1, settings=STAY)
    it.nodes.append(it.add(env={"FAKE_NCCL_FAIL": "ncclCommInitRankConfig:1:2"}))
    one_more = steps_beside(it, member)
    members = waiting(it, member)
    it.nodes[1].wait_log("job .*team.*: NCCL does not connect this node; NCCL makes no communicator: "
                         "unhandled system error.*FAKE_NCCL_FAIL")
    one_more()
    ended(members, OK)


def test_a_collective_that_does_not_end_is_given_up(cluster, member):
    """The step is done again, with another communicator."""
    it = cluster(2, common={"nccl_timeout": "5s"}, settings=STAY)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    before = communicators(it, "job")
    hold = pathlib.Path(os.environ["FAKE_GPU"]) / "nccl-hold"
    hold.touch()
    bring(members)
    say(members, "finish")
    said = re.compile("job .*: NCCL has lost the other nodes; a collective of [0-9]+ elements has not ended "
                      "for 5000 ms")
    wait_until(lambda: any(said.search(node.log) for node in it.nodes), "one of the nodes to say so")
    hold.unlink()
    for each in members:
        assert each.line().startswith("OK step=2 ")
    assert all(after > count for after, count in zip(communicators(it, "job"), before))


# ---- what is told ----

def test_who_waits_to_launch_names_the_coordinator(cluster, member):
    """It says when all launch. Once it is back the step goes on, and nothing is void."""
    def waits():
        job, = it.nodes[0].status()["jobs"]
        return [wait for wait in job["waiting_for"] if wait["what"] == "node"]

    it = cluster(2, settings=STAY)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    it.coordinator.program.stop()
    bring(members)
    say(members, "finish")
    wait, = wait_until(waits, "the name")
    assert "the coordinator at unix:" in wait["text"] and "no report for" in wait["text"], wait
    it.coordinator.program.resume()
    for each in members:
        assert each.line().startswith("OK step=2 ")
    assert communicators(it, "job") == [1, 1]


def test_status_tells_how_gpus_are_connected(cluster, member, build):
    it = cluster(2)
    members = crew(members_of(it, member), None, 2)
    assert step(members) == 1
    document = it.nodes[0].status()
    engine = document["daemon"]["engine"]
    assert (engine["name"], engine["version"], engine["missing"]) == ("nccl", "2.28.9", None)
    assert engine["library"].endswith("libnccl.so.2") and "shrink, " in engine["abilities"]
    job, = document["jobs"]
    peer, = job["peers"]
    assert job["communicator_us"] > 0 and peer["same_host"] and peer["transport"] == "P2P/CUMEM"


@pytest.mark.parametrize("said, shown, warned", [
    ("P2P/CUMEM/read", "P2P/CUMEM+NVLS", None), ("NET/IB/0(1)/GDRDMA/Shared", "NET/IB/GDRDMA", None),
    ("NET/Socket/0", "NET/Socket", "is in this host, but NCCL goes to it over the network .NET/Socket.")])
def test_status_tells_what_hardware_does_by_itself(cluster, member, monkeypatch, said, shown, warned):
    """The network between GPUs of one host is warned of."""
    monkeypatch.setenv("FAKE_NCCL_TRANSPORT", said)
    monkeypatch.setenv("FAKE_NCCL_NVLS", "1")
    it = cluster(2)
    assert step(crew(members_of(it, member), None, 2)) == 1
    assert it.nodes[0].job("job")["peers"][0]["transport"] == shown
    if warned:
        it.nodes[0].wait_log(warned)


def test_other_settings_of_nccl_are_not_used(cluster, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    it = cluster(1)
    it.nodes[0].wait_log("NCCL_ALGO in the environment of gradsyncd: not used")


def test_doctor_finds_an_nccl(cluster, build, scratch, monkeypatch):
    """One of a Python environment, where the loader does not look."""
    it = cluster(1)
    doctor = Doctor(build, scratch)
    doctor.socket = it.nodes[0].socket
    said, = doctor()["nccl"]
    assert said["result"] == "ok" and "by NCCL 2.28.9, " in said["text"]
    lacking = cluster(0, common={"nccl_library": "/nowhere/libnccl.so.2"}, name="other")
    doctor.socket = lacking.add(device="cuda:1").socket
    said, = doctor()["nccl"]
    assert said["result"] == "fail" and "/nowhere/libnccl.so.2: cannot open" in said["text"]
    assert "install NCCL 2.18 or newer" in said["fix"]
    folder = scratch / "venv/lib/python3.99/site-packages/nvidia/nccl/lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").symlink_to(build / NCCL)
    monkeypatch.setenv("VIRTUAL_ENV", str(scratch / "venv"))
    said, = doctor()["nccl"]
    assert f"set nccl_library = {folder}/libnccl.so.2 (NCCL 2.28.9)" in said["fix"]
