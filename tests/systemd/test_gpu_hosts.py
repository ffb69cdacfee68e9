# SPDX-License-Identifier: Apache-2.0
"""Hosts with several GPUs, set up by the commands of docs/GPU_HOSTS.md: a daemon for each GPU, all of them
fake, on one machine and on two. A job with a member on each GPU goes on while a daemon, or all of a host, are
restarted, and while one is killed."""
import pathlib
import re

import pytest

import fakes
from clusters import PATIENT, STAY, cluster_text
from job import KILL, RESTART, daemons_of, form, leave, step_of, training
from machine import cable

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/GPU_HOSTS.md"
ADDRESSES = ("10.79.1.1", "10.79.1.2")
UNIT = "gradsyncd@cuda:{}.service"


def commands(heading, interface, address, gpus):
    """The page's commands below this heading, for machines of our own."""
    page = PAGE.read_text("utf-8")
    text = re.search(rf"^## {re.escape(heading)}\n.*?^```sh\n(.*?)^```$", page, re.S | re.M)[1]
    for theirs, ours in (("eth1", interface), ("10.0.0.1", address), ("{0..7}", f"{{0..{gpus - 1}}}")):
        text = text.replace(theirs, ours)
    return text


class Hosts:
    """`gpus` of each machine; nodes are (machine, number of the GPU)."""

    def __init__(self, machines, interface, address, gpus):
        self.machines = machines
        self.words = (interface, address, gpus)
        self.nodes = [(machine, gpu) for machine in machines for gpu in range(gpus)]

    def follow(self, machine, heading):
        return machine.run("bash", "-ec", commands(heading, *self.words), env=fakes.ENVIRONMENT).stdout

    def set_up(self, build, shared):
        fakes.clear(shared)
        first = self.machines[0]
        first.write("/etc/gradsync/coordinator.conf.d/patient.conf", cluster_text(**PATIENT))
        self.follow(first, "The coordinator")
        key = (first.root / "etc/gradsync/key").read_text("utf-8")
        for machine in self.machines:
            machine.write("/etc/gradsync/key", key).chmod(0o600)
            fakes.install(machine, build)
            # To the kernel both machines are one.
            name = machine.hostname
            machine.write("/etc/gradsync/gradsyncd.conf.d/fakes.conf",
                          cluster_text(host_id=name, nccl_settings=f"NCCL_HOSTID={name}") +
                          "[daemon]\n" + "".join(f"{key} = {value}\n" for key, value in STAY.items()))
            self.follow(machine, "A daemon for each GPU")
        return self

    def members(self, trainers):
        made = []
        for machine, gpu in self.nodes:
            made += trainers("alice", 1, on=machine, MEMBER_CUDA="1", MEMBER_GPU=gpu,
                             GRADSYNC_DEVICE=f"cuda:{gpu}", **fakes.ENVIRONMENT)
        return made


def by_device(machine):
    return {each["daemon"]["device"]: each for each in daemons_of(machine)}


def steps(hosts):
    """The step of each daemon, as it says."""
    found = {machine: by_device(machine) for machine in hosts.machines}
    return [step_of(found[machine].get(f"cuda:{gpu}", {"jobs": []})) for machine, gpu in hosts.nodes]


def check_status(hosts):
    """Each daemon has NCCL, serves its GPU, and reaches all others, those of its host directly."""
    gpus = hosts.words[2]
    for machine in hosts.machines:
        daemons = by_device(machine)
        uuids = {daemons[f"cuda:{gpu}"]["daemon"]["gpu"]["uuid"] for gpu in range(gpus)}
        assert len(uuids) == gpus
        for gpu in range(gpus):
            daemon, (job,) = daemons[f"cuda:{gpu}"]["daemon"], daemons[f"cuda:{gpu}"]["jobs"]
            assert (daemon["engine"]["name"], daemon["engine"]["missing"]) == ("nccl", None)
            assert len(job["peers"]) == len(hosts.nodes) - 1
            assert [peer["same_host"] for peer in job["peers"]].count(True) == gpus - 1
            assert {peer["transport"] for peer in job["peers"]} == {"P2P/CUMEM"}, "what the fake one says"
        told = hosts.follow(machine, "Is all well?")
        assert len(re.findall(r"^gradsyncd \S+ on cuda:\d,", told, re.M)) == gpus, told
        assert len(re.findall(r"^  connected in .*: node \d P2P/CUMEM,", told, re.M)) >= gpus, told
        assert len(re.findall(r"^ok +gpu /dev/shm ", told, re.M)) == gpus, told
        assert not re.findall(r"^(?:warn|fail) .*", told, re.M), told


def trains(hosts, trainers, shared):
    members = form(hosts.members(trainers), "spread")
    first, last = hosts.machines[0], hosts.machines[-1]
    units = [UNIT.format(gpu) for gpu in range(hosts.words[2])]

    def train(*meanwhile):
        return training(first, members, lambda: steps(hosts), [(last, *what) for what in meanwhile])

    assert train((units[1:2], RESTART), (units, RESTART)) == [0] * len(members)
    check_status(hosts)
    void = train((units[:1], KILL))
    assert max(void) <= 2, void         # the open step, and its repetition if that came too early
    leave(members)
    assert fakes.broken_rules(shared) == ""


def test_all_gpus_of_one_host(machine, trainers, build, shared):
    hosts = Hosts([machine], "lo", "127.0.0.1", fakes.GPUS).set_up(build, shared)
    trains(hosts, trainers, shared)


@pytest.fixture
def pair(machine, other_machine):
    with cable((machine, other_machine), ADDRESSES):
        yield machine, other_machine


def test_two_hosts(pair, trainers, build, shared):
    hosts = Hosts(pair, "eth0", ADDRESSES[0], 2).set_up(build, shared)
    trains(hosts, trainers, shared)
