# SPDX-License-Identifier: Apache-2.0
"""Adds the rows of a run of run.sh on hardware to RESULTS.md.

  results.py add ROWS [RESULTS]     the rows of a run: $OUT/rows.jsonl
  results.py check [RESULTS]        fails unless it has the form that add gives it, and nothing of a fake GPU

Rows of a fake GPU are refused, and so are rows that do not name their card and driver.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
NOTHING = "Nothing has been measured on hardware yet."
HEAD = "| part | question | answer | detail |\n|---|---|---|---|\n"
FIELDS = ("date", "card", "driver", "mode", "gradsync", "run")
FAKE = re.compile(r"fake GPU|fafafafa", re.I)


class Refused(Exception):
    """The reason, in one sentence."""


def find(rows, part, fact):
    return next((row for row in rows if (row["part"], row["fact"]) == (part, fact)), None)


def section(rows):
    """The text for one run."""
    if any(row.get("fake") for row in rows):
        raise Refused("the rows are of a fake GPU")
    begin, card, end = find(rows, "run", "begin"), find(rows, "reductions", "card"), find(rows, "run", "end")
    if begin is None or card is None or card["answer"] == "error":
        raise Refused("the rows do not say of which card they are: part reductions is missing, or has failed")
    if FAKE.search(card["answer"] + card["detail"]):
        raise Refused(f"the card is '{card['answer']}'")
    driver = re.search(r"Module\S*\s+(?:for \S+\s+)?(\d+\.[\d.]+)", begin["detail"])
    cuda = re.search(r"CUDA \d+\.\d+", card["detail"])
    mps = re.search(r"MPS (yes|no)", card["detail"])
    if cuda is None or mps is None:
        raise Refused("the row of the card does not tell the driver's version and whether there is MPS")
    whole = "cut off" if end is None or end["answer"] != "done" else end["detail"]
    fields = (begin["answer"][:10], f"{card['answer']}, {card['detail'].split('; opened')[0]}",
              f"{driver.group(1) if driver else 'version unknown'} ({cuda.group()})",
              "MPS" if mps.group(1) == "yes" else "no MPS",
              begin["detail"].split(";")[0].removeprefix("gradsync "), whole)
    head = f"## {fields[0]}, {card['answer']}, {fields[3]}\n\n"
    said = "".join(f"- {name}: {cell(value)}\n" for name, value in zip(FIELDS, fields))
    table = "".join("| " + " | ".join(cell(row[key]) for key in ("part", "fact", "answer", "detail")) + " |\n"
                    for row in rows if row["part"] != "run" or row["answer"] not in ("done", begin["answer"]))
    return f"{head}{said}\n{HEAD}{table}"


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def add(rows, results):
    """`results` with the run as its last section."""
    return results.replace(NOTHING + "\n", "").rstrip("\n") + "\n\n" + section(rows)


def check(results):
    """Returns a list of sentences, each about a thing that is wrong with the results."""
    found = []
    sections = results.split("\n## ")[1:]
    if (NOTHING in results) == bool(sections):
        found.append(f"'{NOTHING}' stands there if, and only if, there is no result")
    for text in sections:
        title = text.splitlines()[0]
        if FAKE.search(text):
            found.append(f"'{title}' has rows of a fake GPU")
        names = tuple(re.findall(r"^- (\w+): \S", text, re.M))
        if names != FIELDS:
            found.append(f"'{title}' has not the fields {', '.join(FIELDS)}")
        body = text.partition(HEAD)[2].strip("\n").splitlines()
        if not body or any(len(re.split(r"(?<!\\)\|", line)) != 6 for line in body):
            found.append(f"'{title}' has no table of rows, or more than that")
    return found


def main(arguments):
    """The process' status."""
    what = arguments[0] if arguments else ""
    if what == "add" and len(arguments) in (2, 3):
        path = pathlib.Path(arguments[2]) if len(arguments) > 2 else HERE / "RESULTS.md"
        try:
            lines = pathlib.Path(arguments[1]).read_text(encoding="utf-8").splitlines()
            path.write_text(add([json.loads(line) for line in lines], path.read_text(encoding="utf-8")),
                            encoding="utf-8")
        except (Refused, OSError, ValueError) as error:
            return f"results.py: {arguments[1]}: {error}"
        return 0
    if what == "check" and len(arguments) in (1, 2):
        path = pathlib.Path(arguments[1]) if len(arguments) > 1 else HERE / "RESULTS.md"
        return "\n".join(check(path.read_text(encoding="utf-8"))) or 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
