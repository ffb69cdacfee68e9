# SPDX-License-Identifier: Apache-2.0
"""A small terminal: what a person sees of a program that writes to it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from harness import DEADLINE, environment, wait_until

TOKEN = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Shown:
    """The text of a failure: the lines that a test waited for, and those on the terminal."""

    def __init__(self, terminal, lines):
        self.terminal, self.lines = terminal, lines

    def __str__(self):
        return f"{list(self.lines)} on the terminal, which has {self.terminal.lines}"

    def __format__(self, spec):
        return str(self)


class Terminal:
    """One program, whose output and errors, or what `streams` names of them, go to a terminal of this size.
    It knows only what it must; anything else that a program asks of it is an error."""

    def __init__(self, command, env, rows=24, columns=60, streams=("stdout", "stderr"),
                 stderr=subprocess.DEVNULL):
        self.parent, child = pty.openpty()
        self.resize(rows, columns)
        self.lines, self.row, self.column, self.rest = [""], 0, 0, ""
        kinds = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": stderr,
                 **dict.fromkeys(streams, child)}
        self.process = subprocess.Popen([str(word) for word in command], **kinds,
                                        env=environment({"TERM": "xterm", **env}))
        self.pid = self.process.pid
        os.close(child)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.parent, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _put(self, text):
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[:self.column] + text + line[self.column + len(text):]
        self.column += len(text)

    def _down(self):
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _control(self, number, letter):
        if letter == "A":
            self.row -= int(number or 1)
            assert 0 <= self.row and len(self.lines) - self.row <= self.rows, "above the top of the terminal"
        elif letter == "K":
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif letter == "J":
            self.lines[self.row] = self.lines[self.row][:self.column]
            del self.lines[self.row + 1:]
        else:
            assert letter == "m", f"ESC [ {number} {letter}"

    def _take(self, text):
        text = self.rest + text
        at = 0
        while at < len(text):
            token = TOKEN.match(text, at)
            if token is None:           # the start of a sequence
                assert len(text) - at < 16, text[at:]
                break
            number, letter, move, plain = token.groups()
            if letter:
                self._control(number, letter)
            elif move == "\r":
                self.column = 0
            elif move:
                self._down()
            else:
                self._put(plain)
            at = token.end()
        self.rest = text[at:]

    def pump(self):
        """Takes what the program has written; False at its end."""
        while select.select([self.parent], [], [], 0)[0]:
            try:
                data = os.read(self.parent, 65536)
            except OSError:
                return False
            self._take(data.decode())
        return True

    @property
    def screen(self):
        """All lines, those that have scrolled away too, without empty ones at the end."""
        self.pump()
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n").split("\n")

    def shows(self, *lines):
        """Waits until these are all lines."""
        wait_until(lambda: self.screen == list(lines), Shown(self, lines))

    def wait(self):
        """The exit status, and all that was written has been taken."""
        wait_until(lambda: not self.pump(), "the end of the program")
        return self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.parent)


class Controlled:
    """A program with a terminal of its own, which it controls: keys in, pages out."""

    def __init__(self, command, env, cwd="."):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execvpe(str(command[0]), [str(word) for word in command],
                           environment({"TERM": "xterm", **env}))
            finally:
                os._exit(127)
        self.text = ""
        self.code = None

    def key(self, keys):
        os.write(self.fd, keys.encode())

    def take(self, timeout):
        """More of what it has written; False when it has ended, or nothing came."""
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:                 # its end
            return False
        self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def page(self, pattern):
        """Waits for a whole page in which this is found, among those that begin from now on."""
        begun = self.text.count("\x1b[J")
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            for page in self.text.split("\x1b[J")[begun + 1:]:
                if re.search(pattern, page) and ("\x1b[?7h" in page):
                    return page
            self.take(0.2)
        raise AssertionError(f"no page with {pattern!r}; the last: {self.text[-1500:]}")

    def ended(self):
        self.take(0.05)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return pid

    def wait(self):
        """The exit status, and all that was written has been taken."""
        if self.code is None:
            wait_until(self.ended, "the end of the program")
        while self.take(0):
            pass
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
