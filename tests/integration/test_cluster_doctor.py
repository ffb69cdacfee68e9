# SPDX-License-Identifier: Apache-2.0
"""gradsyncctl doctor of a daemon that belongs to a cluster: each check once broken, then repaired."""
import datetime
import os

import pytest

import harness
from clusters import HELPER, PATIENT, cluster_text, write_key
from harness import free_port, wait_until
from test_check_config import ABSENT, NEVER_HERE
from test_cli_doctor import Doctor, needs_root

pytestmark = pytest.mark.host

CHECKS = ["cluster address", "cluster key", "coordinator", "cluster clock"]


@pytest.fixture
def key(scratch):
    return write_key(scratch / "key")


@pytest.fixture
def address():
    """The coordinator's address."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def common(address, key, build):
    """Settings of a daemon that looks for that coordinator."""
    return {"coordinator": address, "key_file": key, "gloo_helper": build / HELPER}


@pytest.fixture
def coordinator(daemon, address, key):
    return daemon(device="none",
                  config=cluster_text(listen=address, key_file=key, host_id="head", **PATIENT))


@pytest.fixture
def served(daemon, common):
    """served(**settings) -> a daemon that looks for that coordinator, or for none."""
    return lambda **settings: daemon(config=cluster_text(**{**common, **settings}))


@pytest.fixture
def doctor(build, scratch):
    return Doctor(build, scratch)


def on(doctor, made):
    doctor.socket = made.socket
    return doctor


def rewrite(made, **settings):
    """Another configuration file, which the daemon does not read before it is started again."""
    made.config.write_text(cluster_text(**settings) + harness.settings_text(harness.USUAL))


def test_all_is_well(doctor, coordinator, served, address):
    made = served(data_address="lo")
    made.wait_log("knows this gradsyncd as node")
    found = on(doctor, made)()
    assert [check for check in found if check in CHECKS] == CHECKS
    said = {check: found[check][0]["text"] for check in CHECKS}
    assert all(found[check][0]["result"] == "ok" for check in CHECKS), said
    assert said["cluster address"] == "exchanges data on 127.0.0.1"
    assert said["coordinator"].startswith(f"{address} is on host head, gradsyncd ")
    assert "the first one is 'main'" in said["cluster key"] and "round trip" in said["cluster clock"]
    # The daemon's own connection is as it was, and the coordinator has written nothing down.
    assert "has connected again" not in coordinator.log
    found = on(doctor, coordinator)()
    assert [check for check in found if check in CHECKS] == ["cluster address", "cluster key"]
    assert found["cluster address"][0]["text"] == f"listens on {address}"


def test_a_daemon_without_a_cluster_has_none_of_these_checks(doctor, daemon):
    assert not set(CHECKS + ["cluster settings"]) & set(on(doctor, daemon())())


@pytest.mark.parametrize("broken", [{"data_address": "nothere0"}, {"listen": "nothere0:7752"}],
                         ids=["data_address", "listen"])
def test_cluster_address(doctor, coordinator, served, common, broken):
    made = served()
    rewrite(made, **common, **broken)
    result, text, fix = on(doctor, made).one("cluster address")
    said = f"{next(iter(broken))}: 'nothere0' is neither an address nor an interface"
    assert (result, said in text, "ip address" in fix) == ("fail", True, True), (text, fix)
    rewrite(made, **common, data_address="lo")
    doctor.green("cluster address")


def in_days(days):
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    return f"until={then:%Y-%m-%dT%H:%M:%SZ}"


def test_cluster_key(doctor, coordinator, served, key):
    doctor = on(doctor, served())
    good = key.read_bytes()
    doctor.green("cluster key")
    key.chmod(0o640)
    result, text, fix = doctor.one("cluster key")
    assert result == "fail" and "may be read or written by others" in text and "0600" in fix
    key.chmod(0o600)
    key.write_text("main nonsense\n")
    assert doctor.one("cluster key")[0] == "fail"
    key.unlink()
    result, text, _ = doctor.one("cluster key")
    assert result == "fail" and "No such file" in text
    write_key(key, rest=in_days(3))
    first, second = doctor()["cluster key"]
    assert first["result"] == "warn" and "'main'" in first["text"] and "runs out in 3.0 days" in first["text"]
    assert second["result"] == "ok"
    write_key(key, rest=in_days(-3))
    found = doctor()["cluster key"]
    assert [(each["result"], "is over" in each["text"] or "in force" in each["text"]) for each in found] == \
        [("warn", True), ("fail", True)]
    key.write_bytes(good)
    key.chmod(0o600)
    doctor.green("cluster key")


def test_there_is_no_key(doctor, coordinator, served, common):
    made = served()
    del common["key_file"]
    rewrite(made, **common)
    result, text, fix = on(doctor, made).one("cluster key")
    assert result == "fail" and "no TCP between daemons without a key" in text and "key new" in fix
    assert doctor.one("coordinator")[0] == "fail"
    rewrite(made, **common, insecure_no_auth="yes")
    assert doctor.one("cluster key")[0] == "warn"


def test_a_coordinator_that_is_not_there(doctor, coordinator, served, address):
    doctor = on(doctor, served())
    doctor.green("coordinator")
    coordinator.program.kill()
    result, text, fix = doctor.one("coordinator")
    assert result == "fail" and f"{address} cannot be reached: Connection refused" in text
    assert "firewall" in fix and "cluster clock" not in doctor()
    coordinator.start()
    doctor.green("coordinator")


def test_a_coordinator_with_another_key(doctor, coordinator, served, scratch, common):
    made = served()
    rewrite(made, **{**common, "key_file": write_key(scratch / "other")})
    result, text, fix = on(doctor, made).one("coordinator")
    assert result == "fail" and "is reached, and does not let this daemon in" in text and "same key" in fix
    rewrite(made, **common)
    doctor.green("coordinator")


def test_a_coordinator_without_a_known_name(doctor, served):
    made = served(coordinator="nowhere.invalid:7700")
    result, text, fix = on(doctor, made).one("coordinator")
    assert result == "fail" and "the name 'nowhere.invalid' is not known here" in text and "/etc/hosts" in fix


@needs_root
def test_another_user_is_told_what_the_daemon_says(doctor, coordinator, daemon, common):
    made = daemon(config=cluster_text(**common), settings={"socket_mode": "0666"})
    os.chmod(doctor.tmp, 0o777)
    made.wait_log("knows this gradsyncd as node")
    found = on(doctor, made)(uid=61300)
    assert found["coordinator"][0]["text"] == f"{common['coordinator']} is on host head"
    assert "cluster key" not in found
    coordinator.program.kill()
    wait_until(lambda: doctor(uid=61300)["coordinator"][0]["result"] == "fail", "the loss")
    assert "as root" in doctor(uid=61300)["coordinator"][0]["fix"]
    coordinator.start()


@pytest.mark.parametrize("check, verdict, line, said", [
    ("affinity", "warn", f"[daemon]\naffinity = {ABSENT}", "no CPU is left for the workers"),
    ("cluster times", "fail", "death = 1s", "must each be longer"),
    ("socket group", "fail", "[daemon]\nsocket_group = no-such-group", "there is no group 'no-such-group'"),
    ("metrics address", "warn", "[daemon]\nmetrics_listen = 192.0.2.1:9464",
     "cannot listen on 192.0.2.1:9464"),
    ("metrics address", "fail", f"[daemon]\nmetrics_listen = {NEVER_HERE}",
     f"cannot listen on {NEVER_HERE}"),
])
def test_settings_that_do_not_suit(doctor, served, common, check, verdict, line, said):
    made = served()
    made.config.write_text(cluster_text(**common) + line + "\n")
    result, text, fix = on(doctor, made).one(check)
    assert result == verdict and said in text and fix


@pytest.mark.parametrize("line, said", [("nonsense = 1", "nonsense"),
                                        ("listen = somewhere", "'somewhere' is no address")])
def test_settings_that_gradsyncd_does_not_understand(doctor, served, line, said):
    made = served()
    made.config.write_text(f"[cluster]\n{line}\n")
    result, text, _ = on(doctor, made).one("cluster settings")
    assert result == "warn" and said in text
