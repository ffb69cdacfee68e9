# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: a backend for pip (PEP 517) that needs nothing but Python, meson and a compiler.

The tree around is compiled and installed into gradsync/_bundle/, with the libraries that it needs and that
not every Linux has. All of it finds its libraries relative to itself ($ORIGIN), so the wheel works wherever
it is unpacked. The daemon is built without libsystemd, which is there for the journal: a daemon of a wheel is
no system service. The wheel's tag names the glibc that its files need.
"""
import base64
import email.message
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent
TREE = HERE.parents[2]
OPTIONS = ("-Dprefix=/", "-Dlibdir=lib", "-Dbuildtype=release", "-Dcli=enabled", "-Dexamples=true",
           "-Dsystemd=disabled", "-Dman=disabled", "-Dtests=disabled", "-Dbench=disabled", "-Dcuda=disabled",
           "-Dgloo=disabled", "-Dtls=disabled")         # jobs of a private daemon stay on its host
#: Where a file of bin/, sbin/, lib/ or libexec/gradsync/ looks for libraries; before LD_LIBRARY_PATH.
RPATH = "-Wl,--disable-new-dtags,-rpath,$ORIGIN:$ORIGIN/../lib:$ORIGIN/../../lib"
#: The parts of an installation that belong to a wheel.
WANTED = ("bin/gradsyncctl", "sbin/gradsyncd", "lib/libgradsync.so.0", "libexec/gradsync", "share/gradsync")
#: Libraries of glibc, which every Linux that the tag names has.
GLIBC = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv))\.so(\.\d+)?")
MODE_FILE, MODE_PROGRAM = 0o100644, 0o100755


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def output(*command):
    return run(*command, capture_output=True, text=True).stdout


def compile_tree(folder, destination):
    """Installs the tree into `destination`."""
    settings = (*OPTIONS, f"-Dc_link_args={RPATH}")
    run("meson", "setup", *settings, folder, TREE)
    run("ninja", "-C", folder, *(("-j", os.environ["JOBS"]) if os.environ.get("JOBS") else ()))
    run("meson", "install", "-C", folder, "--no-rebuild", "--strip", "--destdir", destination)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def keep_copyright(library, licences):
    """Copies the copyright text of the library's package, where there is Debian's dpkg."""
    if not shutil.which("dpkg-query"):
        return
    for path in (library, library.resolve()):
        found = subprocess.run(["dpkg-query", "--search", str(path)], capture_output=True, text=True,
                               check=False)
        copyright = pathlib.Path("/usr/share/doc") / found.stdout.partition(":")[0] / "copyright"
        if found.returncode == 0 and copyright.exists():
            licences.mkdir(exist_ok=True)
            shutil.copy(copyright, licences / f"{library.name}.copyright")
            return


def collect(installed, bundle, licences):
    """Copies the parts that are wanted, and the libraries that they need beside libgradsync."""
    for name in WANTED:
        source = installed / name
        if source.is_dir():
            shutil.copytree(source, bundle / name)
        else:
            (bundle / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, bundle / name)         # if it is a link, the file that it points to
    for path in [path for path in bundle.rglob("*") if path.is_file() and is_elf(path)]:
        for name, place in re.findall(r"^\t(\S+) => (\S+)", output("ldd", path), re.M):
            if GLIBC.fullmatch(name):
                continue
            if place == "not":
                raise SystemExit(f"{path} needs {name}, which is not there")
            if not (bundle / "lib" / name).exists():
                shutil.copy(place, bundle / "lib" / name)
                keep_copyright(pathlib.Path(place), licences)


def check(bundle):
    """The libraries of others are taken as they are, so none may need another one that is not glibc's."""
    for path in (bundle / "lib").iterdir():
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", path))
        loose = [name for name in needed if not GLIBC.fullmatch(name)]
        if loose and not path.name.startswith("libgradsync"):
            raise SystemExit(f"{path.name} needs {', '.join(loose)}, and would not find it in the wheel")


def tag(bundle):
    """manylinux_2_34_x86_64: by the newest version of glibc that a file asks for."""
    versions = set()
    for path in bundle.rglob("*"):
        if path.is_file() and is_elf(path):
            wanted = output("readelf", "--version-info", "--wide", path)
            versions.update(re.findall(r"\bGLIBC_(\d+)\.(\d+)", wanted))
    major, minor = max((int(a), int(b)) for a, b in versions)
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def project():
    with open(PROJECT / "pyproject.toml", "rb") as file:
        described = tomllib.load(file)["project"]
    meson = (TREE / "meson.build").read_text("utf-8")
    described["version"] = re.search(r"^\s*version: '([^']+)'", meson, re.M)[1]
    return described


def metadata(described):
    """METADATA of the wheel."""
    made = email.message.EmailMessage()
    made["Metadata-Version"] = "2.4"
    made["Name"] = described["name"]
    made["Version"] = described["version"]
    made["Summary"] = described["description"]
    made["License-Expression"] = described["license"]
    made["License-File"] = "LICENSE"
    made["Requires-Python"] = described["requires-python"]
    for extra, wanted in described["optional-dependencies"].items():
        made["Provides-Extra"] = extra
        for each in wanted:
            made["Requires-Dist"] = f'{each}; extra == "{extra}"'
    return "".join(f"{name}: {value}\n" for name, value in made.items())


def entry_points(described):
    groups = {"console_scripts": described["scripts"], **described["entry-points"]}
    return "".join(f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in entries.items())
                   for group, entries in groups.items())


class Wheel:
    """A wheel that is being written, with its RECORD."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=MODE_FILE):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = mode << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def add_tree(self, folder, into):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                mode = MODE_PROGRAM if path.stat().st_mode & 0o100 else MODE_FILE
                self.add(f"{into}/{path.relative_to(folder).as_posix()}", path.read_bytes(), mode)

    def close(self, info):
        self.zip.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)),
                          "".join(self.record) + f"{info}/RECORD,,\n")
        self.zip.close()


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Compiles the tree, and writes the wheel; returns its name."""
    described = project()
    with tempfile.TemporaryDirectory(prefix="gradsync-wheel-") as scratch:
        build, installed, bundle, licences = (pathlib.Path(scratch) / name
                                              for name in ("build", "installed", "bundle", "licences"))
        compile_tree(build, installed)
        collect(installed, bundle, licences)
        check(bundle)
        kind = f"py3-none-{tag(bundle)}"
        name = f"gradsync-{described['version']}-{kind}.whl"
        info = f"gradsync-{described['version']}.dist-info"
        wheel = Wheel(pathlib.Path(wheel_directory) / name)
        wheel.add_tree(PROJECT / "gradsync", "gradsync")
        wheel.add_tree(bundle, "gradsync/_bundle")
        wheel.add(f"{info}/METADATA", metadata(described).encode())
        wheel.add(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: gradsync_wheel\nRoot-Is-Purelib: false\n"
                  f"Tag: {kind}\n".encode())
        wheel.add(f"{info}/entry_points.txt", entry_points(described).encode())
        wheel.add(f"{info}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())
        wheel.add_tree(licences, f"{info}/licenses")
        wheel.close(info)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("gradsync has no source distribution of the Python package: build the wheel in the tree")
