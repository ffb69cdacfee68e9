# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own programs read the metrics of daemons."""
import json
import os
import shutil
import urllib.parse
import urllib.request

import pytest

import harness
import monitoring
from exposition import parse
from peer import Crew
from scraping import own_address


def fetch(address, path, **query):
    text = urllib.parse.urlencode(query)
    with urllib.request.urlopen(f"http://{address}{path}{'?' + text if text else ''}",
                                timeout=harness.DEADLINE) as answer:
        return answer.read().decode()


def is_there(address, path):
    try:
        return bool(fetch(address, path))
    except OSError:
        return False


def test_promtool_is_content(texts, promtool):
    """promtool finds no fault with names, types, units and help."""
    for text in texts:
        assert promtool("check", "metrics", input=text) == ""


@pytest.fixture
def collector(tools, program, scratch):
    """collector() -> the metrics of node_exporter, which reads the files in scratch/files each time."""
    folder, address = scratch / "files", own_address()
    folder.mkdir()
    program(tools.node_exporter, "--collector.disable-defaults", "--collector.textfile",
            f"--collector.textfile.directory={folder}", f"--web.listen-address={address}")
    harness.wait_until(lambda: is_there(address, "/"), "node_exporter")
    return lambda: fetch(address, "/metrics")


def samples(text):
    """{sample with its labels: value}"""
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_the_files_of_two_daemons_are_read_together(daemon, peers, collector, scratch):
    served = [daemon(device=device) for device in ("cpu:left", "cpu:right")]
    for number, each in enumerate(served, start=1):
        peers(Crew(each.socket, "same", 2)).go(number)
        each.ctl("metrics", "--output", scratch / f"files/gradsync-{number}.prom")
    found = samples(collector())
    assert found["node_textfile_scrape_error"] == "0"
    uid = os.geteuid()
    for number, side in enumerate(("left", "right"), start=1):
        sample = f'{{device="cpu:{side}",job_name="same",outcome="committed",uid="{uid}"}}'
        assert found[f"gradsync_steps_total{sample}"] == str(number)
        assert f'node_textfile_mtime_seconds{{file="{scratch}/files/gradsync-{number}.prom"}}' in found
        given = parse((scratch / f"files/gradsync-{number}.prom").read_text())
        count = sum(map(len, given.values()))
        assert sum(f'device="cpu:{side}"' in sample for sample in found) == count
    assert "go_goroutines" in found and "process_open_fds" in found     # its own, beside the daemons'


class Prometheus:
    """A Prometheus that scrapes an address each second, and evaluates the rules of docs/monitoring."""

    def __init__(self, tools, program, scratch, target):
        self.address = own_address()
        shutil.copy(monitoring.RULES, scratch / "rules.yml")
        (scratch / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            f"- {{job_name: gradsync, static_configs: [{{targets: ['{target}']}}]}}\n")
        self.program = program(tools.prometheus, f"--config.file={scratch}/prometheus.yml",
                               f"--storage.tsdb.path={scratch}/data", f"--web.listen-address={self.address}")
        harness.wait_until(lambda: is_there(self.address, "/-/ready"), "Prometheus")

    def ask(self, path, **query):
        told = json.loads(fetch(self.address, f"/api/v1/{path}", **query))
        assert told["status"] == "success", told
        return told["data"]

    def query(self, text):
        return self.ask("query", query=text)["result"]

    def rules(self):
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("jobs", ["no", "yes"])
def test_prometheus_scrapes_a_daemon(daemon, peers, program, scratch, tools, jobs):
    """Then each rule and each panel of docs/monitoring works on the samples."""
    target = own_address()
    served = daemon(settings={"metrics_listen": target, "metrics_listen_jobs": jobs})
    peers(Crew(served.socket, "job", 2)).go(3)
    prometheus = Prometheus(tools, program, scratch, target)
    steps = 'gradsync_steps_total{outcome="committed"}'
    sample, = harness.wait_until(lambda: prometheus.query(f"{steps} == 3"), "the steps")
    labels = {"__name__": "gradsync_steps_total", "outcome": "committed", "device": "cpu", "job": "gradsync",
              "instance": target}
    if jobs == "yes":
        labels |= {"job_name": "job", "uid": str(os.geteuid())}
    assert sample["metric"] == labels
    harness.wait_until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), "all rules")
    assert len(prometheus.rules()) > 10
    for title, text in monitoring.expressions():
        assert isinstance(prometheus.query(text), list), title
    name = "gradsync_steps_total"
    known = harness.wait_until(lambda: prometheus.ask("metadata", metric=name), "the types")
    assert [row["type"] for row in known[name]] == ["counter"]
