# SPDX-License-Identifier: Apache-2.0
"""`meson install` into a staging directory gives what a package needs, and no trace of this build."""
import json
import pathlib
import re

import pytest

from staging import output

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MULTIARCH = "lib/x86_64-linux-gnu"
VERSION = re.search(r"version: '([\d.]+)'", (SOURCE / "meson.build").read_text("utf-8"))[1]
FILE, PROGRAM, LINK = "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"
CALLS = re.findall(r"^\s+(gradsync_\w+);", (SOURCE / "client/lib/libgradsync.map").read_text("utf-8"), re.M)


def expected(libdir):
    """{path below the prefix: mode and kind}"""
    return {
        "bin/gradsyncctl": PROGRAM,
        "sbin/gradsyncd": PROGRAM,
        "include/gradsync/gradsync.h": FILE,
        "include/gradsync/types.h": FILE,
        "libexec/gradsync/demo.py": PROGRAM,
        "libexec/gradsync/digits": PROGRAM,
        "libexec/gradsync/hello": PROGRAM,
        "libexec/gradsync/gradsync-gloo": PROGRAM,
        "share/doc/gradsync/examples/gradsyncd.conf": FILE,
        "share/gradsync/digits.csv.gz": FILE,
        "share/gradsync/digits.md": FILE,
        f"{libdir}/libgradsync.so": LINK,
        f"{libdir}/libgradsync.so.0": LINK,
        f"{libdir}/libgradsync.so.{VERSION}": PROGRAM,
        f"{libdir}/pkgconfig/gradsync.pc": FILE,
        "lib/systemd/system/gradsyncd-coordinator.service": FILE,
        "lib/systemd/system/gradsyncd-coordinator.socket": FILE,
        "lib/systemd/system/gradsyncd@.service": FILE,
        "lib/systemd/system/gradsyncd@.socket": FILE,
        "lib/systemd/user/gradsyncd@.service": FILE,
        "lib/systemd/user/gradsyncd@.socket": FILE,
        "lib/sysusers.d/gradsync.conf": FILE,
        "lib/tmpfiles.d/gradsync.conf": FILE,
        "share/bash-completion/completions/gradsyncctl": FILE,
        "share/fish/vendor_completions.d/gradsyncctl.fish": FILE,
        "share/man/man1/gradsyncctl.1": FILE,
        "share/man/man3/gradsync.3": FILE,
        **{f"share/man/man3/{call}.3": FILE for call in CALLS},
        "share/man/man5/gradsyncd.conf.5": FILE,
        "share/man/man7/gradsync.7": FILE,
        "share/man/man8/gradsyncd.8": FILE,
        "share/zsh/site-functions/_gradsyncctl": FILE,
    }


@pytest.fixture(scope="module")
def distribution(tmp_path_factory):
    """A build directory configured the way Debian does it."""
    build = tmp_path_factory.mktemp("distribution") / "build"
    output("meson", "setup", "--prefix=/usr", f"--libdir={MULTIARCH}", "--sysconfdir=/etc",
           "--localstatedir=/var", "--buildtype=plain", "-Dsystemd=enabled", "-Dcli=enabled", "-Dman=enabled",
           "-Dtests=disabled", build, SOURCE)
    return build


def test_these_files_with_these_modes(staging):
    assert staging.files() == {f"/usr/local/{path}": mode for path, mode in expected(staging.libdir).items()}


def test_below_another_prefix_it_is_the_same(distribution):
    plan = json.loads(output("meson", "introspect", "--installed", distribution))
    assert sorted(plan.values()) == sorted(f"/usr/{path}" for path in expected(MULTIARCH))
    for kind in ("", "user/"):
        service = (distribution / f"systemd/{kind}gradsyncd@.service").read_text("utf-8")
        assert "\nExecStart=/usr/sbin/gradsyncd " in service and "/usr/local" not in service
    config = (distribution / "meson-private/gradsync.pc").read_text("utf-8")
    assert config.startswith("prefix=/usr\n")


def test_directories_may_be_entered_and_written_by_root_alone(staging):
    modes = {oct(path.stat().st_mode & 0o7777) for path in staging.folder.rglob("*") if path.is_dir()}
    assert modes == {"0o755"}


def test_links_stay_inside(staging):
    library = staging.path(f"/usr/local/{staging.libdir}/libgradsync.so")
    assert library.readlink() == pathlib.Path("libgradsync.so.0")
    assert library.with_name("libgradsync.so.0").readlink() == pathlib.Path(f"libgradsync.so.{VERSION}")


def test_no_path_of_the_build_inside(staging):
    """Neither the source nor the build nor the staging directory is in any of the files."""
    telling = [str(path).encode() for path in (SOURCE, staging.build, staging.folder)]
    assert {path: word for path in staging.files() for word in telling
            if word in staging.path(path).read_bytes()} == {}


def test_programs_look_for_libraries_where_the_system_does(staging):
    for path in ("sbin/gradsyncd", "bin/gradsyncctl", f"{staging.libdir}/libgradsync.so"):
        dynamic = output("readelf", "--dynamic", staging.path(f"/usr/local/{path}"))
        assert "(NEEDED)" in dynamic and not re.search(r"\((RPATH|RUNPATH)\)", dynamic), path
    assert re.search(r"\(SONAME\).*\[libgradsync\.so\.0\]", dynamic)


def test_pkg_config_says_what_a_compiler_needs(staging, tmp_path):
    assert staging.flags("--modversion") == VERSION
    prefix = f"{staging.folder}/usr/local"
    assert staging.flags("--cflags", "--libs").split() == [
        f"-I{prefix}/include", f"-L{prefix}/{staging.libdir}", "-lgradsync"]
    assert staging.flags("--print-requires") == staging.flags("--print-requires-private") == ""
    hello = staging.compile(SOURCE / "client/examples/hello.c", tmp_path / "hello")
    assert "[libgradsync.so.0]" in output("readelf", "--dynamic", hello)


def test_the_demo_runs_from_where_it_is_installed(staging):
    """It finds the daemon, its trainer, and that finds its library and data, below any folder."""
    told = json.loads(output(staging.path("/usr/local/bin/gradsyncctl"), "demo", "--json", env={"GRADSYNC_SOCKET": ""}))
    assert told["equal"] and told["kill"]["successor_pid"]
