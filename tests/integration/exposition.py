# SPDX-License-Identifier: Apache-2.0
"""The text of metrics, taken apart by the rules of OpenMetrics."""
import re

SUFFIXES = {"counter": ["_total"], "gauge": [""], "info": ["_info"], "stateset": [""],
            "summary": ["_count", "_sum"], "histogram": ["_bucket", "_count", "_sum"]}
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def labels_of(text):
    found, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, text
        assert match[1] not in found, text
        found[match[1]] = match[2].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
        at = match.end()
    return found


def parse(text):
    """{sample name: {labels as sorted pairs: value}} of a text that keeps the rules: families whole and in
    one piece, suffixes as their types want them, no series twice, and the end where it belongs."""
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    families, samples, current = {}, {}, None
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            if word == "TYPE":
                assert name not in families and rest in SUFFIXES, line
                assert not name.endswith(("_total", "_info", "_count", "_sum", "_bucket")), line
                families[name] = rest
                current = name
            else:
                assert word == "HELP" and name == current and rest.endswith("."), line
            continue
        match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
        assert match, line
        name, labels, value = match[1], labels_of(match[2] or ""), float(match[3])
        assert name in [current + suffix for suffix in SUFFIXES[families[current]]], (line, current)
        series = tuple(sorted(labels.items()))
        assert series not in samples.setdefault(name, {}), line
        samples[name][series] = value
        if families[current] in ("counter", "histogram", "summary", "info"):
            assert value >= 0, line
    for name, kind in families.items():
        if kind == "histogram" and name + "_bucket" in samples:
            check_histogram(samples, name)
    return samples


def check_histogram(samples, name):
    by_rest = {}
    for series, value in samples[name + "_bucket"].items():
        labels = dict(series)
        rest = tuple(pair for pair in series if pair[0] != "le")
        by_rest.setdefault(rest, []).append((float(labels["le"]), value))
    for rest, buckets in by_rest.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf")
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert samples[name + "_count"][rest] == buckets[-1][1] and rest in samples[name + "_sum"]


def series(**labels):
    return tuple(sorted(labels.items()))
