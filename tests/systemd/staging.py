# SPDX-License-Identifier: Apache-2.0
"""The files that `meson install` puts into a staging directory, as for a package."""
import json
import os
import shlex
import stat
import subprocess


def output(*command, env=None):
    """The output of a command, which must succeed."""
    words = [*map(str, command)]
    done = subprocess.run(words, env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, \
        f"{shlex.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


class Staging:
    """The files of `build`, installed below `folder`."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        output("meson", "install", "-C", build, "--no-rebuild", "--destdir", folder)
        options = json.loads(output("meson", "introspect", "--buildoptions", build))
        (self.libdir,) = [option["value"] for option in options if option["name"] == "libdir"]

    def files(self):
        """{path: mode and kind, as the first column of ls} of all that is no directory."""
        return {f"/{path.relative_to(self.folder)}": stat.filemode(path.lstat().st_mode)
                for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir()}

    def path(self, installed):
        return self.folder / str(installed).lstrip("/")

    def copy_to(self, root):
        output("cp", "-a", "--no-preserve=ownership", f"{self.folder}/.", root)

    def flags(self, *wanted):
        """The answer of pkg-config, which looks at the staging directory alone."""
        (config,) = self.folder.rglob("gradsync.pc")
        env = {"PKG_CONFIG_LIBDIR": str(config.parent), "PKG_CONFIG_SYSROOT_DIR": str(self.folder)}
        return output("pkg-config", *wanted, "gradsync", env=env).strip()

    def compile(self, program, target):
        """A program of one file, compiled as the README says, against the staged files."""
        flags = shlex.split(self.flags("--cflags", "--libs"))
        output("cc", "-Wall", "-Werror", program, "-o", target, *flags)
        return target
