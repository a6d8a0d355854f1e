"""The wheel: what is in it, and that it works where there is neither a compiler nor the source.

`DRYSTONE_WHEEL` names it: `cargo xtask python` builds one, for the PyTorch that it tests.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
import zipfile
from importlib.metadata import version
from pathlib import Path

from support import FOLDER, run

PACKAGE = FOLDER.parent
ROOT = PACKAGE.parent
WHEEL = os.environ.get("DRYSTONE_WHEEL")
TRAIN = """
import torch
x = torch.ones(1000, device="cuda")
print(torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated())
"""
# From nothing to the first run, with PyTorch there.
SECONDS_MAX = 60


@unittest.skipUnless(WHEEL, "DRYSTONE_WHEEL names no wheel: see cargo xtask python")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = Path(WHEEL)
        cls.archive = zipfile.ZipFile(cls.wheel)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "train.py").write_text(TRAIN)
        # No compiler, no cargo, no variable of this repository's.
        cls.venv = cls.folder / "venv"
        cls.nothing = dict(
            PATH=str(cls.venv / "bin"), HOME=str(cls.folder / "home"), TMPDIR=str(cls.folder),
            PYTHONPATH=None, CXX=None,
            DRYSTONE_LIBRARY=None, DRYSTONE_CACHE=None, XDG_CACHE_HOME=None)
        begin = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(cls.venv)], check=True)
        [packages] = cls.venv.glob("lib/python*/site-packages")
        (packages / "pytorch.pth").write_text(sysconfig.get_path("platlib"))
        cls.python = str(cls.venv / "bin/python")
        cls.installed = cls.started(
            cls.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--no-index", "--find-links", str(cls.wheel.parent), "drystone")
        cls.first = cls.started(cls.python, "-m", "drystone", "train.py")
        cls.seconds = time.monotonic() - begin
        # Nothing was compiled, so there is no folder to keep it.
        cls.is_home_made = (cls.folder / "home").exists()

    @classmethod
    def started(cls, *command, **changes):
        return run(*command, folder=cls.folder, **{**cls.nothing, **changes})

    def test_from_nothing_to_a_run_takes_less_than_a_minute(self):
        self.assertEqual(self.installed.returncode, 0, self.installed.stderr)
        self.assertEqual((self.first.stdout, self.first.stderr), ("drystone 4096\n", ""))
        self.assertFalse(self.is_home_made)
        print(f"from nothing to the end of the first run: {self.seconds:.1f} s")
        self.assertLess(self.seconds, SECONDS_MAX)

    def test_contents(self):
        names = self.archive.namelist()
        of_package = {name for name in names if name.startswith("drystone/")}
        sources = (path for pattern in ("*.py", "*.h", "*.cpp")
                   for path in (PACKAGE / "drystone").rglob(pattern))
        expected = {str(path.relative_to(PACKAGE)) for path in sources}
        expected |= {"drystone/libdrystone.so", "drystone/libdrystone_preload.so",
                     "drystone/_cpp/drystone.h", "drystone/_bin/drystone"}
        page = ROOT / "crates/tools/cli/src/report/html"
        expected |= {f"drystone/_html/{path.name}" for path in page.iterdir()} - {
            "drystone/_html/README.md"}
        compiled = {name for name in of_package if name.startswith("drystone/_compiled/")}
        self.assertEqual(of_package - compiled, expected)
        release = re.match(r"[\d.]+", version("torch")).group()
        self.assertIn(f"drystone/_compiled/drystone-torch-{release}-abi1.so", compiled)
        others = {name.partition(".dist-info/")[2] for name in set(names) - of_package}
        self.assertEqual(others, {
            "METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE-APACHE",
            "licenses/LICENSE-MIT", "licenses/THIRD-PARTY-NOTICES"})

    def test_it_needs_nothing_and_names_its_licences(self):
        [name] = [name for name in self.archive.namelist() if name.endswith("/METADATA")]
        metadata = self.archive.read(name).decode()
        self.assertNotIn("Requires-Dist", metadata)
        self.assertIn("Requires-Python: >=3.10", metadata)
        self.assertIn("License-File: THIRD-PARTY-NOTICES", metadata)
        notices = self.archive.read(name.replace("METADATA", "licenses/THIRD-PARTY-NOTICES"))
        for crate in ("cudarc", "parking_lot", "clap", "zstd-sys"):
            self.assertRegex(notices.decode(), rf"(?m)^{crate} \d")

    def test_its_platform_is_that_of_pytorchs_own_wheels(self):
        self.assertRegex(self.wheel.name, r"-py3-none-manylinux_2_28_\w+\.whl$")

    def test_the_source_archive_has_all_that_builds_it(self):
        [archive] = self.wheel.parent.glob("drystone-*.tar.gz")
        done = run("tar", "-tzf", str(archive))
        names = {name.partition("/")[2] for name in done.stdout.splitlines()}
        self.assertLessEqual({
            "Cargo.lock", "LICENSE-MIT", "THIRD-PARTY-NOTICES", "README.md", "hatch_build.py",
            "crates/capi/src/lib.rs", "xtask/src/main.rs", "drystone/__init__.py",
            ".cargo/config.toml"}, names)

    def test_a_program_that_enables_it_and_makes_a_report(self):
        code = ("import drystone, torch; drystone.enable(route='plugin');"
                "kept = torch.ones(3, device='cuda');"
                "drystone.report('page.html');"
                "print(drystone.library_path(), torch.cuda.memory_allocated())")
        done = self.started(self.python, "-c", code)
        [library] = self.venv.glob("lib/python*/site-packages/drystone/libdrystone_preload.so")
        self.assertEqual(done.stdout, f"{library} 512\n", done.stderr)
        self.assertIn("GPU 0: ", (self.folder / "page.html").read_text())

    def test_its_commands(self):
        done = self.started("drystone-run", "--route", "plugin", "python", "train.py")
        self.assertEqual(done.stdout, "pluggable 4096\n", done.stderr)
        done = self.started("drystone", "--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^drystone \d+\.\d+\.\d+")

    def test_another_pytorch_is_a_plug_in_and_one_line_says_what_is_missing(self):
        [index] = self.venv.glob("lib/python*/site-packages/drystone/_compiled/index.json")
        text = index.read_text()
        self.addCleanup(index.write_text, text)
        changed = json.loads(text)
        for release in changed["releases"].values():
            release["digest"] = "of other headers"
        index.write_text(json.dumps(changed))
        done = self.started(self.python, "-m", "drystone", "train.py")
        self.assertEqual(done.stdout, "pluggable 4096\n", done.stderr)
        [line] = done.stderr.splitlines()
        self.assertRegex(line, "^drystone: enabled as a plug-in of PyTorch, .* has other headers "
                               "than the release of that number, and there is no C.. compiler")
        # With one it is compiled, from what is installed and nothing else.
        done = self.started(self.python, "-m", "drystone", "train.py", PATH=os.environ["PATH"])
        self.assertEqual(done.stdout, "drystone 4096\n", done.stderr)
        self.assertRegex(done.stderr, "^drystone: compiling for this build of PyTorch, once")


class Version(unittest.TestCase):
    def test_the_versions_are_one(self):
        cargo = (ROOT / "Cargo.toml").read_text()
        release = re.search(r'^version = "(.*)"', cargo, re.MULTILINE).group(1)
        for module in ("python/drystone", "python-sim/drystone_sim"):
            text = (ROOT / module / "__init__.py").read_text()
            self.assertIn(f'__version__ = "{release}"\n', text, module)
        # Crates of the workspace depend on each other's same version.
        for line in cargo.splitlines():
            if "path = " in line and "version = " in line:
                self.assertIn(f'version = "{release}"', line)
        recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
        self.assertIn(f"version: {release}\n", recipe)


if __name__ == "__main__":
    sys.exit(unittest.main())
