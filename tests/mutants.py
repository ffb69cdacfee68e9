# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in the GPU path and what goes between nodes, one at a time, and checks that the tests turn red.

  mutants.py BUILD [NAME...]     in the tree that BUILD was configured for, which must be a copy: files are
                                 changed in place, and put back

Run by mutants.sh. Each row names a file, what is replaced there by what (the text occurs once), and the tests
that are to find it: `unit NAME`, or `jobs WORD`, those of integration/test_cuda.py and
test_digits_cuda.py that match, or `nccl WORD`, those of integration/test_nccl.py.
"""
import os
import pathlib
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
CUDA, CLIENT = "daemon/backend/cuda", "client/lib"
NCCL, RENDEZVOUS = "daemon/engine/nccl", "daemon/rendezvous"
FILES = {"jobs": ["test_cuda.py", "test_digits_cuda.py"], "nccl": ["test_nccl.py"]}

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
        "        card->cuda.release(handle);\n        return r;\n}\n\nstatic cuda_result vmm_make_beside",
        "        return r;\n}\n\nstatic cuda_result vmm_make_beside", "jobs killed_at_any_point"),
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

    "staging holds no neutral elements": (
        f"{CUDA}/vmm.c", "for (unsigned i = 0; i < request->n_fills && r", "for (unsigned i = 0; i < 0 && r",
        "unit test_cuda"),
    "neutral elements are a page's worth": (
        f"{CUDA}/vmm.c", "there < bytes && r == CUDA_OK", "0 * bytes && r == CUDA_OK", "unit test_cuda"),
    "memory beside is as it was": (
        f"{CUDA}/vmm.c", "memset(vmm->beside->address, 0, bytes);", "(void)bytes;", "unit test_cuda"),
    "a tail is not copied in": (
        f"{NCCL}/launcher.c", "        if (tail)\n", "        if (tail && lane->launched > 1000)\n",
        "unit test_nccl"),
    "a tail is not copied out": (
        f"{NCCL}/launcher.c", "if (outcome_good(ret) && tail)", "if (outcome_good(ret) && tail && !ret)",
        "unit test_nccl"),
    "a tail begins at the payload's beginning": (
        f"{NCCL}/nccl.c", "flight->tail_at = bytes - piece->tail_bytes;",
        "flight->tail_at = 0;", "unit test_nccl"),
    "a vote is the largest": (
        f"{NCCL}/launcher.c", "NCCL_UINT64, NCCL_MIN,", "NCCL_UINT64, NCCL_MAX,", "unit test_nccl"),
    "fillers vote": (
        f"{NCCL}/nccl.c", "launch->kind == ENGINE_FILLER ? 0 : launch->value[i]", "launch->value[i]",
        "unit test_nccl"),
    "what has ended counts as done, whatever NCCL says": (
        f"{NCCL}/launcher.c", "outcome.nccl = lane_health(&gpu->nccl, lane);", "outcome.nccl = NCCL_OK;",
        "unit test_nccl"),
    "nobody asks how NCCL is": (
        f"{NCCL}/launcher.c", "        return r == NCCL_IN_PROGRESS ? NCCL_OK : r;\n",
        "        return NCCL_OK;\n", "unit test_nccl"),
    "more are launched than the window has room for": (
        f"{NCCL}/nccl.c", "launch->sequence - lane->ended <= ENGINE_WINDOW ?", "launch->sequence > 0 ?",
        "unit test_nccl"),
    "outputs may lie outside of the memory": (
        f"{NCCL}/nccl.c", "piece->output > memory->bytes - bytes ||", "piece->output > memory->bytes ||",
        "unit test_nccl"),
    "memory that is registered is forgotten at once": (
        f"{NCCL}/nccl.c", "if (memory != NULL && registrar_is_free(memory)) {", "if (memory != NULL) {",
        "unit test_nccl"),
    "memory is let go of and stays registered": (
        f"{NCCL}/registrar.c", "if (memory->unwanted && registrar_may(",
        "if (!memory->unwanted && registrar_may(", "unit test_nccl"),
    "the second lane does not wait for its parent": (
        f"{NCCL}/form.c", "result == NCCL_OK ? NCCL_IN_PROGRESS : result, deadline))",
        "result, deadline))", "unit test_nccl"),
    "communicators block": (
        f"{NCCL}/form.c", "config.blocking = 0;", "config.blocking = 1;", "unit test_nccl"),
    "a communicator that waits for a rank is not interrupted": (
        f"{NCCL}/form.c", "wanted = communicator_is_wanted(comm, deadline);\n"
        "                pthread_mutex_unlock(&comm->shop->lock);\n        }\n        if (result == NCCL_OK)",
        "wanted = true;\n"
        "                pthread_mutex_unlock(&comm->shop->lock);\n        }\n        if (result == NCCL_OK)",
        "unit test_nccl"),
    "what is aborted parts in good order": (
        f"{NCCL}/worker.c", "end_communicator(comm, abort);", "end_communicator(comm, abort && false);",
        "unit test_nccl"),
    "a new communicator does not wait until an aborted one is freed": (
        f"{NCCL}/shop.c", "if (comm->state == COMMUNICATOR_ABORTED && !comm->over)", "if (comm == NULL)",
        "unit test_nccl_revoke"),
    "an end is told when it is quiet, and once more": (
        f"{NCCL}/nccl.c", "bool untold = comm->state == COMMUNICATOR_ABORTED && !comm->told;",
        "bool untold = comm->state == COMMUNICATOR_ABORTED;", "unit test_nccl_revoke"),
    "pinned memory is not kept": (
        f"{CUDA}/vmm.c", "        pinned_leave(pinned, vmm->beside);\n",
        "        if (vmm->beside != NULL)\n                card->cuda.host_free(vmm->beside->address);\n",
        "unit test_cuda"),
    "an older communicator is lent again": (
        f"{NCCL}/way.c", "older->lent = older->spent = true;", "older->lent = true;", "unit test_nccl_ways"),
    "an older communicator is used for whatever comes next": (
        f"{NCCL}/way.c", "return comm->n_nodes < older->n_nodes;", "return true;", "unit test_nccl_ways"),
    "windows are registered whether all can or not": (
        f"{NCCL}/form.c", "form_vote(comm, form_take_panes(comm), &all, deadline)",
        "form_vote(comm, form_take_panes(comm) || true, &all, deadline)", "unit test_nccl_windows"),
    "a window that failed is tried again": (
        f"{NCCL}/shop.c", "windowless |= comm->registers;", "windowless |= false;",
        "unit test_nccl_windows"),
    "a window whose communicator was aborted has failed": (
        f"{NCCL}/form.c", "        form_set_registers(comm, false);\n",
        "        form_set_registers(comm, false);\n        comm->shop->windowless |= !good;\n",
        "unit test_nccl_windows"),
    "a sum stays in the window": (
        f"{NCCL}/launcher.c",
        "        if (outcome_good(ret))\n                ret->cuda = cuda->copy(flight->output,",
        "        if (!outcome_good(ret))\n                ret->cuda = cuda->copy(flight->output,",
        "unit test_nccl_windows"),
    "memory is given back while others are at work": (
        f"{NCCL}/worker.c", "if (communicator_is_last(comm))", "if (comm->over)", "unit test_nccl"),
    "two daemons may serve one GPU": (
        f"{NCCL}/form.c", "strcmp(other->uuid, own->uuid) == 0 &&", "strcmp(other->uuid, own->uuid) > 0 &&",
        "unit test_nccl"),
    "one engine is built, so both are": (
        "daemon/engine/both.c", "comm->told = n > 0 || both_all(comm, half_is_built);", "comm->told = true;",
        "nccl restarted"),
    "lanes have the numbers of their engine": (
        "daemon/engine/both.c", "comm->half[side->kind].lane[lane], sequence, value);",
        "lane, sequence, value);", "nccl beside_a_plan"),
    "trailers are not exchanged": (
        "daemon/job/plan/exchange.c", "bool has_tail = tail > 0 && !idle;", "bool has_tail = false;",
        "nccl statistics"),
    "all trailers lie in the first slot": (
        "daemon/job/plan/exchange.c", "+ piece % exchange->n_slots * exchange->tail_bytes;",
        "+ piece % 1 * exchange->tail_bytes;", "nccl statistics"),
    "launches go as far as anybody is ready": (
        f"{RENDEZVOUS}/coordinator_launch.c", "return planted(PLANTED_AGREES_WITH_ANY) ? any : all;",
        "return all < any ? any : all;", "unit test_agreed"),
    "launches that were let are taken back": (
        f"{RENDEZVOUS}/coordinator_launch.c", "c->go[lane] = c->node[node].go[lane];", "(void)node;",
        "unit test_agreed"),
    "a node launches what it has not": (
        f"{RENDEZVOUS}/node_lane.c", "node->lane[at].go < order->go[at] &&\n"
        "                       node->lane[at].go < node->lane[at].ready)",
        "node->lane[at].go < order->go[at])", "unit test_agreed"),
    "what was ready is still so after a freeze": (
        f"{RENDEZVOUS}/node_lane.c", "node->lane[at].ready = node->lane[at].go = node->lane[at].launched;",
        "node->lane[at].go = node->lane[at].launched;", "unit test_agreed"),
    "one that takes over has room for whom it has heard of": (
        f"{RENDEZVOUS}/coordinators.c", "world > all ? world : all, tracks", "all, tracks",
        "unit test_coordinators"),
    "a node is ready for any number": (
        f"{RENDEZVOUS}/node_lane.c", "- node->lane[at].completed < node->config.window;",
        "- node->lane[at].completed < LIMIT_WINDOW + 0 * node->config.window;", "unit test_agreed"),
    "a communicator that stays is not waited for": (
        f"{RENDEZVOUS}/node_order.c", "if (node->unbuilt)",
        "if (node->unbuilt && order->comm.number == node->generation.number)", "unit test_machine_comm"),
    "a communicator that stays has no broken links": (
        f"{RENDEZVOUS}/node_order.c", "node->origin = ORIGIN_OWN;\n        node->away = false;",
        "nodeset_clear(node->links);\n        node->origin = ORIGIN_OWN;\n        node->away = false;",
        "unit test_machine_comm"),
    "a newcomer is all that a restart leaves": (
        f"{RENDEZVOUS}/coordinator.c", "reporter->renewed = true;", "reporter->renewed = false;",
        "unit test_machine"),
}


def build(folder):
    done = subprocess.run(["ninja", "-C", str(folder)], stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def is_green(folder, test):
    kind, name = test.split()
    if kind == "unit":
        command = [str(folder / "tests/unit" / name)]
    else:
        tests = [str(TREE / "tests/integration" / file) for file in FILES[kind]]
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
