# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in the GPU path, one at a time, and checks that the tests turn red.

  mutants.py BUILD [NAME...]     in the tree that BUILD was configured for, which must be a copy: files are
                                 changed in place, and put back

Run by mutants.sh. Each row names a file, what is replaced there by what (the text occurs once), and the tests
that are to find it: `unit NAME`, or `jobs WORD`, those of integration/test_cuda.py and
test_digits_cuda.py that match.
"""
import os
import pathlib
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
CUDA, CLIENT = "daemon/backend/cuda", "client/lib"

MUTANTS = {
    "events are not waited for": (
        f"{CLIENT}/device/device.c", "r = device->cuda.event_wait(event);", "(void)event;", "jobs slow"),
    "a bucket goes before its events": (
        f"{CLIENT}/plan/signal.c", "if (bucket == NULL || bucket->n == 0)", "if (bucket != NULL)",
        "jobs slow"),
    "memory is not cleared": (
        f"{CUDA}/vmm.c", "card->cuda.set_async(vmm->base, 0, vmm->mapped, stream)",
        "card->cuda.set_async(vmm->base, 0, 1, stream)", "unit test_cuda"),
    "memory that comes back is cleared": (
        f"{CUDA}/vmm.c", "        card->cuda.release(handle);\n        return r;\n}\n\n/* An IPC handle",
        "        card->cuda.set_async(vmm->base, 0, vmm->mapped, NULL);\n"
        "        card->cuda.release(handle);\n        return r;\n}\n\n/* An IPC handle", "unit test_cuda"),
    "averages are sums": (
        f"{CUDA}/launch.c", "if (part->reduce != WIRE__REDUCE__AVG)", "if (part->elements > 0)",
        "unit test_cuda"),
    "the piece of a task is left out": (
        f"{CUDA}/issuer.c", "+ ranges[i].offset + skip", "+ ranges[i].offset + 0 * skip", "unit test_cuda"),
    "a range's offset is left out": (
        f"{CUDA}/issuer.c", "+ ranges[i].offset + skip", "+ 0 * ranges[i].offset + skip", "unit test_cuda"),
    "a launch counts as ended at once": (
        f"{CUDA}/issuer.c", "cuda_result r = issuer->card->cuda.event_query(slot->event);",
        "cuda_result r = CUDA_OK;", "unit test_cuda"),
    "tasks of one turn go to several streams": (
        f"{CUDA}/issuer.c", "issuer->lane[task->turn % LANES]", "issuer->lane[task->id % LANES]",
        "unit test_cuda"),
    "results of the first part for all": (
        f"{CUDA}/issuer.c", "&slot->launch.grid.part[p++]", "&slot->launch.grid.part[p]", "unit test_cuda"),
    "counts are those of the next input": (
        f"{CUDA}/issuer.c", "errand->words + 1 + errand->n_inputs", "errand->words + errand->n_inputs",
        "unit test_cuda"),
    "what was found counts from the piece": (
        f"{CUDA}/issuer.c", ": errand->first + found", ": found", "unit test_cuda"),
    "the allocation's handle is kept": (
        f"{CUDA}/vmm.c",
        "        card->cuda.release(handle);\n        return r;\n}\n\nstatic int vmm_refuse_room",
        "        return r;\n}\n\nstatic int vmm_refuse_room", "jobs killed_at_any_point"),
    "memory is not unmapped": (
        f"{CUDA}/vmm.c", "                card->cuda.unmap(vmm->base, vmm->mapped);\n", "", "unit test_cuda"),
    "a range of an IPC handle begins at its base": (
        f"{CUDA}/vmm.c", "vmm->address = vmm->base + request->offset;", "vmm->address = vmm->base;",
        "jobs trainers_own"),
    "an IPC handle is not closed": (
        f"{CUDA}/vmm.c", "                card->cuda.ipc_close(vmm->base);\n", "                ;\n",
        "jobs trainers_own"),
    "kernels of a former daemon are not left to end": (
        f"{CUDA}/keeper.c", "if (wish->request.kind == MEMORY_RETURNED)", "if (wish->fd < -1)",
        "unit test_cuda"),
    "a sticky error is not told": (
        f"{CUDA}/keeper.c", "        keeper->sticky = sticky;\n        keeper->failing",
        "        keeper->failing", "unit test_cuda"),
    "a NaN does not stay in a minimum": (
        f"{CUDA}/grid_pass.h", "return (CMP)b < (CMP)a || IS_NAN(b) ? b : a;",
        "return (CMP)b < (CMP)a ? b : a;",
        "unit test_grid"),
    "sums of a later round replace those before": (
        f"{CUDA}/grid_pass.h", "words, from, k, n, r == 0)", "words, from, k, n, r >= 0)", "unit test_grid"),
    "half of the chunks are not added up": (
        f"{CUDA}/grid_body.h", "chunk += GRID_WARP)", "chunk += 2 * GRID_WARP)", "unit test_grid"),
}


def build(folder):
    done = subprocess.run(["ninja", "-C", str(folder)], stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def is_green(folder, test):
    kind, name = test.split()
    if kind == "unit":
        command = [str(folder / "tests/unit" / name)]
    else:
        tests = [str(TREE / "tests/integration" / file) for file in ("test_cuda.py", "test_digits_cuda.py")]
        command = [sys.executable, "-m", "pytest", "-q", "-x", *tests, "-k", name]
    environment = {**os.environ, "GRADSYNC_BUILD": str(folder), "GRADSYNC_TEST_DEADLINE": "20"}
    try:
        return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=300, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def survives(folder, row):
    """Whether the tests stay green, which they must not; a mutant that does not compile is a mistake here."""
    name, before, after, test = row
    path = TREE / name
    text = path.read_text()
    assert text.count(before) == 1, f"{name}: {before!r} is there {text.count(before)} times"
    try:
        path.write_text(text.replace(before, after))
        assert build(folder), f"{name}: {after!r} does not compile"
        return is_green(folder, test)
    finally:
        path.write_text(text)


def main(folder, *names):
    rows = {name: row for name, row in MUTANTS.items() if not names or name in names}
    assert build(folder)
    for test in sorted({row[3] for row in rows.values()}):
        assert is_green(folder, test), f"{test} is red without a bug"
    alive = []
    for name, row in rows.items():
        if survives(folder, row):
            alive.append(name)
        print(f"{'NOT FOUND' if name in alive else 'found'}: {name}", flush=True)
    print(f"{len(rows) - len(alive)} passed, {len(alive)} failed, 0 skipped")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
