# SPDX-License-Identifier: Apache-2.0
"""Reads docs/monitoring: the rules for alerts, and the dashboard."""
import json
import pathlib
import re

TREE = pathlib.Path(__file__).resolve().parents[2]
RULES = TREE / "docs/monitoring/gradsync.rules.yml"
DASHBOARD = TREE / "docs/monitoring/gradsync-dashboard.json"

#: Grafana replaces these in expressions.
GRAFANA = {"$__rate_interval": "5m", "$__range": "1h", "$datasource": "prometheus"}
LEFT = re.compile(r"\$\w+|\$\{|\[\[")
METRIC = re.compile(r"\bgradsync_[a-z0-9_]+")


def dashboard():
    return json.loads(DASHBOARD.read_text("utf-8"))


def panels(parts):
    """All panels, those in rows too."""
    for part in parts:
        yield part
        yield from panels(part.get("panels", []))


def expressions():
    """[(title of the panel, expression as Prometheus gets it)]"""
    found = []
    variables = {f"${row['name']}": ".*" for row in dashboard()["templating"]["list"]}
    for panel in panels(dashboard()["panels"]):
        for target in panel.get("targets", []):
            text = target["expr"]
            for name, value in sorted({**variables, **GRAFANA}.items(), key=lambda pair: -len(pair[0])):
                text = text.replace(name, value)
            assert not LEFT.search(text), f"{panel['title']}: {text}"
            found.append((panel["title"], text))
    return found


def queries_of_variables():
    return [row["query"]["query"] if isinstance(row["query"], dict) else row["query"]
            for row in dashboard()["templating"]["list"] if row["type"] == "query"]


def metrics_of(text):
    """The names of samples in an expression, without labels and quoted texts."""
    text = re.sub(r'"[^"]*"', '""', text)
    text = re.sub(r"(?<=[{,])\s*\w+\s*(?==|!)", "", text)
    text = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", "", text)
    return set(METRIC.findall(text))
