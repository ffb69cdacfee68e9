# SPDX-License-Identifier: Apache-2.0
"""docs/monitoring: alerts that fire when they should, and a dashboard of metrics that there are."""
import json
import pathlib
import re

import harness
import monitoring
from exposition import parse

HERE = pathlib.Path(__file__).resolve().parent
GUIDE = (monitoring.RULES.parent / "README.md").read_text("utf-8")


def rules_with(promtool, tmp_path, rows):
    """Recording rules of expressions, which promtool looks at."""
    text = json.dumps({"groups": [{"name": "panels", "rules": [
        {"record": f"panel:number_{number}", "expr": expr} for number, (_, expr) in enumerate(rows)]}]})
    (tmp_path / "panels.yml").write_text(text)      # JSON is YAML
    return promtool("check", "rules", tmp_path / "panels.yml")


def test_rules_are_rules(promtool):
    assert re.search(r"SUCCESS: 1[0-9] rules found", promtool("check", "rules", monitoring.RULES))


def test_alerts_fire_when_they_should(promtool):
    assert "SUCCESS" in promtool("test", "rules", HERE / "alerts.test.yml", cwd=monitoring.TREE)


def test_each_alert_is_tried(promtool):
    names = set(re.findall(r"- alert: (\w+)", monitoring.RULES.read_text("utf-8")))
    tried = (HERE / "alerts.test.yml").read_text("utf-8")
    assert names and names == set(re.findall(r"alertname: (\w+)", tried))
    for name in names:              # with an alert that is expected, too
        parts = re.split(r"alertname: ", tried)
        assert any(part.startswith(f"{name}\n") and "exp_labels" in part for part in parts), name


def test_panels_have_expressions_that_prometheus_takes(promtool, tmp_path):
    rows = monitoring.expressions()
    assert len(rows) > 20
    assert f"SUCCESS: {len(rows)} rules found" in rules_with(promtool, tmp_path, rows)


def test_panels_stand_apart():
    """Each has a number of its own, and none covers another."""
    dashboard, taken = monitoring.dashboard(), set()
    assert dashboard["uid"] == "gradsync" and not dashboard.get("id")
    found = list(monitoring.panels(dashboard["panels"]))
    assert len({panel["id"] for panel in found}) == len(found) > 20
    for panel in found:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (panel["description"] and panel["targets"]), panel["title"]


def test_what_is_asked_for_is_given_out(texts):
    """By rules, panels and variables: by daemons of all kinds together."""
    given = {name for text in texts for name in parse(text)}
    asked = monitoring.metrics_of(re.sub(r"(?m)^\s*(#|description|summary).*", "",
                                         monitoring.RULES.read_text("utf-8").replace(">-\n", "")))
    for text in [expr for _, expr in monitoring.expressions()] + monitoring.queries_of_variables():
        names = monitoring.metrics_of(text)
        assert names, text
        asked |= names
    asked -= {"gradsync_rules"}
    assert len(asked) > 25 and asked - given == set()


def test_the_configuration_that_is_proposed(promtool, tmp_path):
    block, = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    (tmp_path / "prometheus.yml").write_text(block)
    (tmp_path / monitoring.RULES.name).write_text(monitoring.RULES.read_text("utf-8"))
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")


def commands():
    """The calls of gradsyncctl in units and tables of cron."""
    return re.findall(r"^(?:ExecStart=|\* \* \* \* \* root )gradsyncctl (.*)$", GUIDE, re.M)


def test_the_commands_that_are_proposed(daemon, scratch):
    assert len(commands()) == 2
    served = daemon()
    for words in commands():
        words = words.replace("%i", "cpu").replace("/var/lib/prometheus/node-exporter", str(scratch)).split()
        assert words.count("/run/gradsync/cpu/socket") == 1
        served.ctl(*[served.socket if word == "/run/gradsync/cpu/socket" else word for word in words])
        assert parse((scratch / "gradsync-cpu.prom").read_text())
        (scratch / "gradsync-cpu.prom").unlink()


def test_the_settings_that_are_proposed(program, tmp_path):
    blocks = [block for block in re.findall(r"```ini\n(.*?)```", GUIDE, re.S) if "[daemon]" in block]
    assert len(blocks) == 1 and "metrics_listen" in blocks[0]
    (tmp_path / "metrics.conf").write_text(blocks[0])
    made = program(harness.DAEMON, "--check", "--config", tmp_path / "metrics.conf",
                   *re.findall(r"--metrics-listen=\S+", GUIDE))
    assert made.wait() == 0, made.err
