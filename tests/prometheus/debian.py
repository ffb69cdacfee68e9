# SPDX-License-Identifier: Apache-2.0
"""Prometheus and its node_exporter as Debian has them. They are unpacked, not installed, as installed ones
would be started as services.

They are some dozen megabytes, so they are kept below build-test/prometheus/: what is there is not fetched
again.
"""
import fcntl
import pathlib
import shutil
import subprocess

PACKAGES = ("prometheus", "prometheus-node-exporter")
SECONDS = 600       # for a download
CACHE = pathlib.Path(__file__).resolve().parents[2] / "build-test/prometheus"


class Missing(Exception):
    """In words of one paragraph."""


class Tools:
    """The programs."""

    def __init__(self, root):
        self.promtool = root / "usr/bin/promtool"
        self.prometheus = root / "usr/bin/prometheus"
        self.node_exporter = root / "usr/bin/prometheus-node-exporter"

    def all(self):
        return [self.promtool, self.prometheus, self.node_exporter]


def run(log, *command, cwd):
    """Whether it has succeeded."""
    try:
        return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log,
                              stderr=subprocess.STDOUT, timeout=SECONDS, check=False).returncode == 0
    except (subprocess.TimeoutExpired, OSError) as error:
        print(f"{command[0]}: {error}", file=log, flush=True)
        return False


def download(folder):
    """The packages of this release of Debian. Its index may be old, or missing: it is fetched if they are not
    found. Missing: they are not to be had."""
    with open(folder.parent / "apt.log", "w", encoding="utf-8") as log:
        done = run(log, "apt-get", "download", *PACKAGES, cwd=folder) or (
            run(log, "apt-get", "-q", "update", cwd=folder)
            and run(log, "apt-get", "download", *PACKAGES, cwd=folder))
    if not done:
        said = (folder.parent / "apt.log").read_text("utf-8", "replace").strip()[-1500:]
        raise Missing(f"apt-get has not got {' and '.join(PACKAGES)}. It needs a mirror of Debian, or both "
                      f"unpacked in {folder.parent / 'root'}. It said:\n{said}")


def unpack(folder, root):
    packages = sorted(folder.glob("*.deb"))
    if len(packages) != len(PACKAGES):
        raise Missing(f"there are {len(packages)} packages in {folder}, not {len(PACKAGES)}")
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True, stdin=subprocess.DEVNULL,
                       timeout=SECONDS)


def tools(cache=CACHE, fetch=download):
    """The Tools, fetched if they were not."""
    cache.mkdir(parents=True, exist_ok=True)
    root, new, packages = cache / "root", cache / "root.new", cache / "packages"
    with open(cache / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            for folder in (new, packages):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            fetch(packages)
            unpack(packages, new)
            absent = [str(path) for path in Tools(new).all() if not path.exists()]
            if absent:
                raise Missing(f"not in Debian's packages: {', '.join(absent)}")
            new.rename(root)
            shutil.rmtree(packages)
    return Tools(root)
