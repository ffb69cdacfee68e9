# SPDX-License-Identifier: Apache-2.0
"""Results of hardware are added to RESULTS.md as they are, and nothing of a fake GPU is."""
import json
import subprocess
import sys

import pytest

import results

EMPTY = f"# Results on hardware\n\nText.\n\n{results.NOTHING}\n"


def row(part, fact, answer, detail="", **more):
    return {"part": part, "fact": fact, "answer": answer, "detail": detail, "ms": 0.0, **more}


def rows(**more):
    return [
        row("run", "begin", "2030-01-02T03:04:05Z", "gradsync 0.1.0-7-gabc; Linux 6.1 x86_64; NVRM version: "
            "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build", **more),
        row("conformance", "a_stream_works_in_order", "yes", **more),
        row("run", "conformance", "done", **more),
        row("reductions", "card", "Some Card", "GPU-1234, sm_90, 132 multiprocessors, L2 51200 KiB, "
            "CUDA 13.0, MPS no; opened with all kernels in 5.0 ms", **more),
        row("reductions", "bandwidth.f32.k2.25MiB", "2000.1 GB/s, 0.9 of a copy", "a | b", **more),
        row("run", "reductions", "done", **more),
        row("run", "integration", "skipped", "there is no pytest", **more),
        row("run", "end", "done", "0 parts failed or were out of time", **more),
    ]


def without(fact):
    return [each for each in rows() if each["fact"] != fact]


def changed(fact, **values):
    return [{**each, **values} if each["fact"] == fact else each for each in rows()]


def test_a_run_becomes_a_section():
    text = results.add(rows(), EMPTY)
    assert results.check(text) == [] and results.NOTHING not in text
    for words in ("## 2030-01-02, Some Card, no MPS\n", "- driver: 580.159.04 (CUDA 13.0)\n",
                  "- gradsync: 0.1.0-7-gabc\n", "- mode: no MPS\n",
                  "- run: 0 parts failed or were out of time\n",
                  "| reductions | bandwidth.f32.k2.25MiB | 2000.1 GB/s, 0.9 of a copy | a \\| b |\n",
                  "| run | integration | skipped | there is no pytest |\n"):
        assert words in text
    twice = results.add(rows(), text)
    assert results.check(twice) == [] and twice.count("\n## ") == 2 and twice.startswith(text.rstrip("\n"))


def test_a_run_that_was_cut_off_says_so():
    text = results.add(rows()[:5], EMPTY)
    assert results.check(text) == [] and "- run: cut off\n" in text


@pytest.mark.parametrize("found, words", [
    (rows(fake=True), "are of a fake GPU"),
    (rows()[:4] + [row("reductions", "find.f32", "yes", fake=True)], "are of a fake GPU"),
    (changed("card", answer="fake GPU"), "the card is 'fake GPU'"),
    (changed("card", detail="GPU-fafafafa-fafa, CUDA 13.0, MPS no"), "the card is 'Some Card'"),
    (changed("card", detail="GPU-1234"), "does not tell the driver's version"),
    (changed("card", answer="error"), "of which card"),
    (without("card"), "of which card"),
    (without("begin"), "of which card"),
    ([], "of which card"),
])
def test_what_is_not_of_hardware_is_refused(found, words, tmp_path):
    kept, file = tmp_path / "RESULTS.md", tmp_path / "rows.jsonl"
    kept.write_text(EMPTY)
    file.write_text("".join(json.dumps(each) + "\n" for each in found))
    done = subprocess.run([sys.executable, results.__file__, "add", file, kept], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 1 and words in done.stderr and len(done.stderr.splitlines()) == 1
    assert kept.read_text() == EMPTY


def test_it_is_added_to_the_file(tmp_path):
    kept, file = tmp_path / "RESULTS.md", tmp_path / "rows.jsonl"
    kept.write_text(EMPTY)
    file.write_text("".join(json.dumps(each) + "\n" for each in rows()))
    subprocess.run([sys.executable, results.__file__, "add", file, kept], check=True)
    assert kept.read_text() == results.add(rows(), EMPTY)
    subprocess.run([sys.executable, results.__file__, "check", kept], check=True)
