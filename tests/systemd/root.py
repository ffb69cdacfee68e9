# SPDX-License-Identifier: Apache-2.0
"""The file system that machines boot from: a minimal Debian of the release that runs here, with the packages
that gradsync needs at run time and no part of gradsync itself.

debootstrap runs here, outside of the new root, and all downloads are its own: mirror, keyring, proxy and the
judgement of certificates are therefore what this system's apt is configured to, and the root needs no
network. The result is kept as an archive; its name holds what it was made of.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

PACKAGES = ("systemd", "systemd-sysv", "dbus", "libpam-systemd", "passwd", "util-linux", "procps", "man-db",
            "libevent-core-2.1-7", "libinih1", "libprotobuf-c1", "libsystemd0", "libjansson4", "libgloo0",
            "libsmartcols1")
FALLBACK = "http://deb.debian.org/debian"
ATTEMPTS = 3                            # mirrors have bad moments; what has come already is kept
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man",
              "dev")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def release():
    """The code name of the Debian that runs here: what is built here runs there."""
    found = re.search(r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text("utf-8"), re.M)
    assert found, "/etc/os-release names no VERSION_CODENAME: only from a Debian another one is made"
    return found[1]


def source(suite):
    """(mirror, options of debootstrap) of apt's first source for the main part of this release."""
    for text in output("apt-get", "indextargets", "Created-By: Packages").split("\n\n"):
        target = dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.M))
        mirror = target.get("Repo-URI", "")
        if target.get("Release") != suite or target.get("Component") != "main":
            continue
        if mirror.startswith(("http:", "https:", "file:")):
            options = []
            if "Signed-By" in target and target["Signed-By"].startswith("/"):
                options.append("--keyring=" + target["Signed-By"])
            elif not pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
                options.append("--no-check-gpg")
            return mirror.rstrip("/"), options
    return FALLBACK, []


def setting(name):
    """One value of apt's configuration; "" if it is not set."""
    return re.sub(r"^.*?'(.*)'\n?$", r"\1", output("apt-config", "shell", "VALUE", name), flags=re.S)


def proxies():
    """Environment variables for what apt uses as proxies."""
    found = {}
    for scheme in ("http", "https"):
        value = setting(f"Acquire::{scheme}::Proxy") or setting("Acquire::http::Proxy")
        if value and value != "DIRECT":
            found[f"{scheme}_proxy"] = value
    return found


def debootstrap(suite, packages, target, debs, log):
    mirror, options = source(suite)
    if setting("Acquire::https::Verify-Peer") == "false":
        options.append("--no-check-certificate")
    debs.mkdir(parents=True, exist_ok=True)
    # Nothing here has to survive a power failure.
    lazy = target / "etc/dpkg/dpkg.cfg.d"
    lazy.mkdir(parents=True)
    (lazy / "lazy").write_text("force-unsafe-io\n")
    # In a mount namespace of its own, so that nothing stays mounted below `target` whatever happens.
    command = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c",
               'mount --make-rprivate / 2>/dev/null; exec "$@"', "sh",
               "debootstrap", "--variant=minbase", f"--cache-dir={debs}", "--include=" + ",".join(packages),
               *options, suite, str(target), mirror]
    with open(log, "ab") as to:
        to.write(f"{' '.join(command)}\n".encode())
        to.flush()
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT,
                              env={**os.environ, **proxies(), "DEBIAN_FRONTEND": "noninteractive"},
                              check=False).returncode


def archive(cache, packages=PACKAGES):
    """The archive, made if `cache` does not hold it yet."""
    suite = release()
    recipe = hashlib.sha256(repr((suite, packages, NOT_NEEDED)).encode()).hexdigest()[:12]
    made = cache / f"root-{suite}-{recipe}.tar"
    if made.exists():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    target, log = cache / "root.new", cache / "debootstrap.log"
    log.unlink(missing_ok=True)
    for _ in range(ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        if debootstrap(suite, packages, target, cache / "debs", log) == 0:
            break
    else:
        raise AssertionError(f"debootstrap failed {ATTEMPTS} times; the end of {log}:\n"
                             f"{log.read_text('utf-8', 'replace')[-3000:]}")
    partial = made.with_suffix(".part")
    subprocess.run(["tar", "--numeric-owner", "--one-file-system",
                    *(f"--exclude=./{name}/*" for name in NOT_NEEDED), "-cf", str(partial),
                    "-C", str(target), "."], check=True)
    partial.rename(made)
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(cache / "debs", ignore_errors=True)
    return made


def unpack(cache, folder, packages=PACKAGES):
    """A fresh root in `folder`, which has not been booted yet: its first boot gives it its machine id."""
    folder.mkdir()
    made = archive(cache, packages)
    subprocess.run(["tar", "--numeric-owner", "-xpf", str(made), "-C", str(folder)], check=True)
    (folder / "etc/machine-id").write_text("")
    (folder / "etc/resolv.conf").unlink(missing_ok=True)
    (folder / "etc/hostname").write_text("node\n")
