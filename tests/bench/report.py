# SPDX-License-Identifier: Apache-2.0
"""The rows as tables for people: Markdown that also reads well on a terminal."""

import os
import platform
import sys
import time


def progress(text):
    """Shows the text on a terminal, in place of the one before it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def hardware():
    model, memory = platform.machine(), 0
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(f.readline().split()[1]) / (1 << 20)
    flags = open("/proc/cpuinfo", encoding="utf-8").read()
    virtual = ", virtual machine" if " hypervisor" in flags else ""
    return f"{len(os.sched_getaffinity(0))} × {model}{virtual}, {memory:.0f} GiB, Linux {platform.release()}"


def size_name(size):
    for factor, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:g} {name}"
    return f"{size} B"


def time_name(us):
    if us is None:
        return "–"
    if us >= 10000:
        return f"{us / 1000:.1f} ms"
    if us >= 1000:
        return f"{us / 1000:.2f} ms"
    return f"{us:.1f} µs" if us >= 10 else f"{us:.2f} µs"


def times_name(value):
    return "–" if value is None else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def table(head, rows):
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = lambda cells: "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *map(line, rows)])


def allreduce(rows):
    body = [[f"{r['members']}{' *' if r['oversubscribed'] else ''}", size_name(r["bytes"]), time_name(r["gradsync_us"]),
             time_name(r["limit_us"]), time_name(r["gloo_us"]), time_name(r["mpi_us"]), time_name(r["mpi_huge_us"]),
             times_name(r["gradsync_over_limit"]),
             times_name(r["gloo_over_gradsync"]), times_name(r["mpi_over_gradsync"]), r["copy_gbps"],
             times_name(r["limit_over_scale"]), "yes" if r["rotating"] else "no"] for r in rows]
    return table(["members", "size", "gradsync", "limit", "Gloo", "Open MPI", "huge pages", "of limit", "Gloo ÷ gs", "MPI ÷ gs",
                  "copy GB/s", "limit ÷ scale", "rotating"], body)


def latency(rows):
    lines = []
    for r in rows:
        if r["socket_us"] is not None:
            polling = f", Gloo polling {time_name(r['gloo_polling_us'])}" if r["gloo_polling_us"] else ""
            lines.append(f"{size_name(r['bytes'])}, {r['members']} members: gradsync {time_name(r['gradsync_us'])}, Open MPI (spins) "
                         f"{time_name(r['mpi_us'])}, Gloo {time_name(r['gloo_us'])}{polling}, a bare round trip over a Unix socket "
                         f"{time_name(r['socket_us'])}.")
    return "\n".join(lines)


def computing(rows):
    ms = lambda value: time_name(value * 1000)
    body = [[f"{r['members']}{' *' if r['oversubscribed'] else ''}", size_name(r["bytes"]), r["buckets"],
             ms(r["compute_alone_ms"]), ms(r["compute_ms"]), times_name(r["slowdown"]), ms(r["exposed_ms"]),
             ms(r["step_alone_ms"]), ms(r["step_ms"]), times_name(r["step_over_alone"]), ms(r["daemon_cpu_ms_per_step"]),
             f"{r['daemon_cpu_s']:.2f} s in {r['steps']}"] for r in rows]
    return table(["members", "gradients", "buckets", "compute alone", "with gradsync", "slowdown", "exposed", "step alone",
                  "step", "ratio", "daemon CPU a step", "daemon CPU"], body)


def hostile(rows):
    ms = lambda value: time_name(value * 1000)
    body = [[f"{r['members']}{' *' if r['members'] > len(os.sched_getaffinity(0)) else ''}", size_name(r["bytes"]),
             ms(r["step_alone_ms"]), ms(r["step_burning_ms"]), ms(r["step_hostile_ms"]),
             times_name(r["hostile_over_burning"]), f"{r['hostile_cpu_share'] * 100:.0f} %", f"{r['loop_cpu_share'] * 100:.0f} %",
             r["connections_per_s"]] for r in rows]
    return table(["members", "gradients", "step alone", "beside burning", "beside hostile", "ratio", "its CPU", "event thread",
                  "connections a second"], body)


def text(rows):
    chosen = lambda name: [r for r in rows if r["table"] == name]
    parts = []
    if chosen("allreduce"):
        parts += [allreduce(chosen("allreduce")),
                  "\\* more processes than cores. Gloo: TCP over loopback. Open MPI: shared memory. Each peer at the fastest of its "
                  "settings for the size; all in ordinary pages, and Open MPI also in huge pages, which gradsync's shared memory "
                  "has only where the system hands them out. `of limit` is gradsync ÷ limit; `limit ÷ scale` is limit ÷ an in-place scale loop with "
                  "the same traffic; rotating: buffers take turns over more than four times the last-level cache.",
                  latency(chosen("allreduce"))]
    if chosen("computing"):
        parts += ["Members computing meanwhile (matrix products in cache, a gradient written after each):",
                  computing(chosen("computing"))]
    for r in chosen("buckets"):
        parts.append(f"{r['buckets']} buckets of {size_name(r['bytes'])} marked back to back, {r['members']} members: the loop thread takes "
                     f"{r['loop_cpu_us_per_bucket']} µs of CPU a bucket, the whole daemon {r['daemon_cpu_us_per_bucket']} µs; "
                     f"{r['us_per_bucket']} µs a bucket on the clock.")
    for r in chosen("recovery"):
        parts.append(f"One of {r['members']} members killed (-9) in an open step of {size_name(r['bytes'])}: the others' `finish` returns "
                     f"VOID_RETRY after {r['void_ms_median']} ms (median; worst of {r['losses']}: {r['void_ms_worst']} ms). From the moment its successor is connected to the next committed "
                     f"step, with a new arena, agreement on the plan, {size_name(r['bytes'])} of state for each member and the step itself: "
                     f"{r['replaced_ms_median']} ms (worst {r['replaced_ms_worst']} ms).")
    for r in chosen("stalls"):
        parts.append(f"One of {r['members']} members stopped (SIGSTOP) in an open step of {size_name(r['bytes'])}: `gradsyncctl status`, "
                     f"run again and again, names its pid, state, bucket and parameter after {r['named_ms_median']} ms (median; worst of "
                     f"{r['stops']}: {r['named_ms_worst']} ms).")
    if chosen("hostile"):
        parts += ["Beside a hostile user (connections of garbage and idle ones, fd floods, half frames, lying sizes, slow readers, endless questions, a "
                  "memory hog, jobs that come and go), against a process that burns as much CPU without connecting:",
                  hostile(chosen("hostile"))]
    disturbed, rounds = (sum(r[name] for r in rows) for name in ("disturbed_rounds", "rounds"))
    if disturbed:
        parts.append(f"{disturbed} of {rounds} rounds began while the machine was not idle.")
    return "\n\n".join(parts) + "\n"


def heading(workers, load):
    return (f"{time.strftime('%Y-%m-%d', time.gmtime())}, {hardware()}, {workers} workers in the daemon, "
            f"load before the run {load:.1f}.\n\n")
