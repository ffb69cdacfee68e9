# SPDX-License-Identifier: Apache-2.0
"""status --watch and top while daemons come and go: what they wait for, what they say, and when they end."""
import contextlib
import json
import os
import re
import signal
import socket
import termios

import pytest

import harness
import wire
from fake import FakeDaemon
from peer import Crew, small_plan
from terminal import Controlled

GONE = "gradsyncctl: the daemon is gone, waiting for the next one\n"


def run_job(peers, served, name, steps):
    crew = peers(Crew(served.socket, name, 1, lambda ordinal: small_plan(2, ordinal=ordinal)))
    crew.go(steps)
    return crew


def restart(served, crew):
    """The daemon is killed; what its clients had goes with them."""
    harness.kill(served)
    crew.close()


def next_document(watching, wanted):
    """Reads documents until one of them is wanted."""
    while True:
        line = watching.line()
        assert line is not None, watching.told()
        document = json.loads(line)
        if wanted(document):
            return document


@pytest.mark.parametrize("words", [["--json", "--watch=0.05"], ["status", "--watch", "0.05"],
                                   ["top", "-b", "-i", "0.05"]], ids=["documents", "pages", "top"])
def test_it_goes_on_with_the_next_daemon(served, program, peers, words):
    """That the daemon is gone is said once, not at each look."""
    crew = run_job(peers, served, "one", 2)
    watching = program(harness.CTL, *words, socket=served.socket)
    for name in ("one", "two"):
        shown = rf'"name": ?"{name}"' if "--json" in words else f"^{name} "
        harness.wait_until(lambda shown=shown: re.search(shown, watching.line()), f"the job {name}")
        if name == "one":
            restart(served, crew)
            harness.wait_until(lambda: GONE in watching.err, "it says that the daemon is gone")
            assert f"  tried {served.socket}: " in watching.err
            served.start()
            run_job(peers, served, "two", 3)
    watching.signal(signal.SIGINT)
    assert watching.wait() == 0
    assert watching.err.count("waiting") == 1, watching.err


def test_pages_of_top_are_counted_without_those_that_were_not_there(fake, program):
    class Once(FakeDaemon):
        def _talk(self, client):
            os.unlink(self.path)        # before it answers: the next look comes as soon as this one is over
            self.listener.shutdown(socket.SHUT_RDWR)
            super()._talk(client)

    first = fake(kind=Once)
    top = program(harness.CTL, "top", "-b", "-i", "0.05", "-n", "2", socket=first.path)
    harness.wait_until(lambda: GONE in top.err, "it says that the daemon is gone")
    second = fake()
    assert top.wait() == 0
    assert top.out.count("1 daemon, ") == 2


def test_a_job_is_waited_for_at_the_next_daemon(served, program, peers):
    crew = run_job(peers, served, "wanted", 2)
    watching = program(harness.CTL, "status", "--json", "-w", "0.05", "wanted", socket=served.socket)
    next_document(watching, lambda document: document["jobs"][0]["step"] == 2)
    restart(served, crew)
    served.start()
    run_job(peers, served, "other", 1)
    begun_anew = 'the daemon has begun anew, waiting for job "wanted"\n'
    harness.wait_until(lambda: begun_anew in watching.err or GONE in watching.err, "it says why it waits")
    run_job(peers, served, "wanted", 4)
    document = next_document(watching, lambda document: document["jobs"][0]["step"] == 4)
    assert document["daemon"]["pid"] == served.pid and watching.process.poll() is None
    assert [job["name"] for job in document["jobs"]] == ["wanted"]


def test_a_job_that_is_over_ends_the_watch(served, program, peers):
    """The same daemon has it no more."""
    crew = run_job(peers, served, "short", 2)
    watching = program(harness.CTL, "status", "--json", "-w", "0.05", "short", socket=served.socket)
    next_document(watching, lambda document: document["jobs"][0]["step"] == 2)
    crew.close()
    assert watching.wait() == 4
    assert 'job "short" ended ' in watching.err and "waiting" not in watching.err


@contextlib.contextmanager
def watch_among_others(daemon, program, peers, scratch):
    """(watch of job "wanted", its daemon, its crew, another daemon): both daemons are found, none is named.
    """
    home, other = daemon(), daemon(device="cpu:b")
    for served, name in ((home, "cpu"), (other, "cpu:b")):
        place = scratch / "run/gradsync" / name
        place.mkdir(parents=True)
        (place / "socket").symlink_to(served.socket)
    run_job(peers, other, "other", 1)
    crew = run_job(peers, home, "wanted", 2)
    watching = program(harness.CTL, "status", "--json", "-w", "0.05", "wanted",
                       env={"XDG_RUNTIME_DIR": scratch / "run", "TMPDIR": scratch})
    next_document(watching, lambda document: document["jobs"][0]["step"] == 2)
    yield watching, home, crew, other


@pytest.mark.parametrize("why", ["nobody listens there", "no such socket"])
def test_other_daemons_do_not_stand_for_that_of_the_job(daemon, program, peers, scratch, why):
    """It is gone, and was not followed by the one that answers still; at its next one the job goes on.
    The socket of a private one goes with it: no place is left where it could be looked for."""
    place = scratch / "run/gradsync/cpu/socket"
    with watch_among_others(daemon, program, peers, scratch) as (watching, home, crew, _):
        if why == "no such socket":
            place.unlink()
        restart(home, crew)
        harness.wait_until(lambda: GONE in watching.err, "it says that the daemon is gone")
        assert f"  tried {place}: {why}\n" in watching.err and "begun anew" not in watching.err
        home.start()
        run_job(peers, home, "wanted", 4)
        if not place.is_symlink():
            place.symlink_to(home.socket)
        next_document(watching, lambda document: document["jobs"][0]["step"] == 4)


def test_a_job_is_over_whatever_other_daemons_do(daemon, program, peers, scratch):
    """Another daemon begins anew while watch does not look; the job's daemon is the same, and knows how the
    job ended."""
    with watch_among_others(daemon, program, peers, scratch) as (watching, _, crew, other):
        watching.stop()
        harness.kill(other)
        crew.close()
        other.start()
        watching.resume()
        assert watching.wait() == 4
        assert 'job "wanted" ended ' in watching.err and "waiting" not in watching.err


def test_what_was_never_there_is_not_waited_for(daemon, program, scratch):
    for words in (["status", "-w", "0.05"], ["--json", "--watch"], ["top", "-b", "-i", "0.05"]):
        made = program(harness.CTL, *words, socket=scratch / "nowhere")
        assert made.wait() == 3 and made.out == "" and "no daemon is running" in made.err
        made = program(harness.CTL, *words, "nobody", socket=daemon().socket)
        assert made.wait() == (2 if words[0] == "--json" else 4) and made.out == ""


def test_a_successor_of_another_protocol_ends_the_watch(fake, program):
    first = fake()
    watching = program(harness.CTL, "status", "-w", "0.05", socket=first.path)
    assert watching.line().startswith("gradsyncd ")
    first.close()
    os.unlink(first.path)
    harness.wait_until(lambda: GONE in watching.err, "it says that the daemon is gone")
    assert "no such socket" in watching.err or "nobody listens" in watching.err
    second = fake(major=9)
    assert watching.wait() == 1 and "version 9 of the protocol" in watching.err


def test_a_daemon_that_hangs_up_in_an_answer_is_gone(fake, program):
    class Cut(FakeDaemon):
        def _send(self, client, head, kind, message):
            if kind == "STATUS_END" and self.cut:
                client.shutdown(socket.SHUT_RDWR)
                raise BrokenPipeError
            super()._send(client, head, kind, message)

    Cut.cut = False
    served = fake(kind=Cut)
    watching = program(harness.CTL, "status", "-w", "0.05", socket=served.path)
    assert watching.line().startswith("gradsyncd ")
    served.cut = True
    harness.wait_until(lambda: GONE in watching.err, "it says that the daemon is gone")
    served.cut = False
    seen = len(watching.out)
    harness.wait_until(lambda: len(watching.err) and len(watching.out) > seen, "pages go on")
    watching.signal(signal.SIGINT)
    assert watching.wait() == 0


# -- on a terminal

@contextlib.contextmanager
def on_terminal(build, *arguments, path):
    with contextlib.closing(Controlled([build / harness.CTL, *arguments], {"GRADSYNC_SOCKET": path})) as made:
        yield made


def several_jobs():
    """Two jobs whose members differ in everything that can be sorted by."""
    answer = []
    for job, name, steps in ((1, "zeta", (5, 9, 7)), (2, "alpha", (30, 20, 10))):
        answer.append(("STATUS_JOB", wire.pb.StatusJob(job=job, name=name, state="running", world=3,
                                                       step=max(steps), exposed=0.1 * job)))
        answer += [("STATUS_MEMBER", wire.pb.StatusMember(job=job, rank=rank, pid=job * 100 + rank, step=step,
                                                          member=rank, state="computing", exposed=share))
                   for rank, (step, share) in enumerate(zip(steps, (0.25, 0.75, 0.5)))]
        answer += [("STATUS_WAIT", wire.pb.StatusWait(job=job, rank=rank, pid=job * 100 + rank, what="join",
                                                      since_ms=1000 * job + 100 * rank)) for rank in (2, 1)]
    return answer


def pids(page):
    return [int(pid) for pid in re.findall(r"^\S+ +\d +(\d+) ", page, re.M)]


BY_RANK, BY_JOB = [100, 101, 102, 200, 201, 202], [200, 201, 202, 100, 101, 102]


def test_keys_of_top(build, fake):
    """All of them on what the first look has seen: a second one shows the shares of the time between."""
    served = fake(answer=several_jobs())
    with on_terminal(build, "top", "-i", "100000", path=served.path) as top:
        assert pids(top.page("by rank")) == BY_RANK
        for key, said, order in (("j", "by job", BY_JOB), ("e", "by exposed", [201, 202, 200, 101, 102, 100]),
                                 ("w", "by wait", [202, 201, 200, 102, 101, 100]),
                                 ("s", "by step", [100, 102, 101, 202, 201, 200]),
                                 ("l", "by late", BY_RANK), ("R", "by late, reversed", BY_RANK[::-1]),
                                 ("r", "by rank, reversed", BY_RANK[::-1]), ("R", "by rank ", BY_RANK)):
            top.key(key)
            assert pids(top.page(rf"waited for; {said}.*\(h: help, q: quit\)\n")) == order, key
        assert len(served.asked) == 1       # a key needs no look
        for opens, closes in (("h", "h"), ("?", "?"), ("h", "x")):
            top.key(opens)
            page = top.page("Keys of gradsyncctl top")
            assert re.findall(r"^  (\w) +sort by ", page, re.M) == list("rjelws") and "JOB" not in page
            top.key(closes)
            top.page("waited for; by rank")
        top.key("\x1b[A")               # an arrow is no key of ours
        assert pids(top.page("by rank")) == BY_RANK
        top.key("q")
        assert top.wait() == 0


def test_the_terminal_is_put_right(build, fake):
    """A key or a signal ends top. Meanwhile keys are not echoed, and need no newline."""
    served = fake()
    script = 'before=$(stty -g); "$@"; code=$?; [ "$(stty -g)" = "$before" ] && echo "the same, $code"'
    for end in (lambda top: top.key("q"), lambda top: top.key("\x03"), lambda top: top.key("\x1c")):
        top = Controlled(["/bin/sh", "-c", "trap : INT QUIT; " + script, "sh", build / harness.CTL, "top",
                          "-i", "0.05"], {"GRADSYNC_SOCKET": served.path})
        top.page("by rank")
        top.key("jjj")
        assert "jjj" not in top.page("by job")
        end(top)
        top.wait()
        assert top.text.endswith("the same, 0\n"), top.text[-300:]
        top.close()


def test_a_shell_that_has_had_the_terminal(build, fake):
    """It has put the terminal right for itself; top sets it again when it goes on, and shows its page."""
    served = fake(answer=several_jobs())
    with on_terminal(build, "top", "-i", "100000", path=served.path) as top:
        top.page("by rank")
        os.kill(top.pid, signal.SIGSTOP)
        harness.wait_until(lambda: harness.process_state(top.pid) in "Tt", "top stopped")
        mode = termios.tcgetattr(top.fd)
        mode[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(top.fd, termios.TCSANOW, mode)
        os.kill(top.pid, signal.SIGCONT)
        assert pids(top.page("by rank")) == BY_RANK
        assert not termios.tcgetattr(top.fd)[3] & (termios.ICANON | termios.ECHO)
        top.key("q")
        assert top.wait() == 0


def test_a_terminal_shows_that_the_daemon_is_gone(build, served):
    with on_terminal(build, "top", "-i", "0.05", path=served.socket) as top, \
            on_terminal(build, "status", "-w", "0.05", path=served.socket) as watching:
        top.page("1 daemon, 0 jobs")
        harness.wait_until(lambda: watching.take(0.1) and "gradsyncd " in watching.text, "a page")
        harness.kill(served)
        said = rf"the daemon is gone, waiting for the next one.*\n  tried {served.socket}: nobody listens"
        top.page(said)
        top.page(r"waiting for the next one \(\d+\.\d s\)\n")         # since it has gone
        watching.page(said)
        top.key("h")
        top.page("Keys of gradsyncctl top")
        top.key("h")
        top.page(said)
        served.start()
        top.page("1 daemon, 0 jobs")
        harness.wait_until(lambda: watching.take(0.1) and f"pid {served.pid}:" in watching.text, "a page")
        top.key("q")
        assert top.wait() == 0


def test_without_a_terminal_at_stdin_there_are_no_keys(build, fake):
    served = fake(answer=several_jobs())
    out = harness.on_terminal([build / harness.CTL, "top", "-n", "1"], {"GRADSYNC_SOCKET": served.path})
    assert "waited for\r\n" in out and "quit" not in out
