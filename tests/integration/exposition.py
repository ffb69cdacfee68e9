# SPDX-License-Identifier: Apache-2.0
"""The text of metrics, taken apart by the rules of the text format of Prometheus."""
import re

SUFFIXES = {"counter": [""], "gauge": [""], "summary": ["_count", "_sum"],
            "histogram": ["_bucket", "_count", "_sum"]}
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
    one piece, suffixes as their types want them, and no series twice. All samples have the label of one
    device; only that of the daemon itself keeps it."""
    assert text.endswith("\n")
    families, samples, current, devices = {}, {}, None, set()
    for line in text.splitlines():
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            if word == "TYPE":
                assert name not in families and rest in SUFFIXES, line
                assert not name.endswith(("_count", "_sum", "_bucket")), line
                assert name.endswith("_total") == (rest == "counter"), line
                families[name] = rest
                current = name
            else:
                assert word == "HELP" and name == current and rest.endswith("."), line
            continue
        match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
        assert match, line
        name, labels, value = match[1], labels_of(match[2] or ""), float(match[3])
        assert name in [current + suffix for suffix in SUFFIXES[families[current]]], (line, current)
        assert not {"job", "instance"} & set(labels), line      # collectors have these for themselves
        devices.add(labels["device"] if name == "gradsync_build_info" else labels.pop("device"))
        series = tuple(sorted(labels.items()))
        assert series not in samples.setdefault(name, {}), line
        samples[name][series] = value
        if families[current] in ("counter", "histogram", "summary"):
            assert value >= 0, line
    assert len(devices) == 1
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


def http(text):
    """(status line, headers, body) of a response that is whole."""
    head, _, body = text.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked" and body:
        body = unchunked(body.encode()).decode()
    return status, headers, body


def unchunked(rest):
    out, size = b"", None
    while size != 0:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        out, rest = out + rest[:size], rest[size:]
        assert rest.startswith(b"\r\n")
        rest = rest[2:]
    assert rest == b""
    return out


def series(**labels):
    return tuple(sorted(labels.items()))
