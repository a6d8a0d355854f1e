"""The wheel: what is in it, and that it installs and works without the source."""

import re
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from support import FOLDER, run

PACKAGE = FOLDER.parent


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        done = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel",
                   "--directory", folder.name, folder=PACKAGE)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        [cls.wheel] = cls.folder.glob("*.whl")

    def test_contents(self):
        self.assertRegex(self.wheel.name, r"^drystone-0\.1\.0-py3-none-linux_\w+\.whl$")
        names = zipfile.ZipFile(self.wheel).namelist()
        of_package = {name for name in names if name.startswith("drystone/")}
        sources = (path for pattern in ("*.py", "*.h", "*.cpp")
                   for path in (PACKAGE / "drystone").rglob(pattern))
        expected = {str(path.relative_to(PACKAGE)) for path in sources}
        expected |= {"drystone/libdrystone.so", "drystone/_cpp/drystone.h"}
        page = PACKAGE.parent / "crates/tools/cli/src/report/html"
        expected |= {f"drystone/_html/{path.name}" for path in page.iterdir()} - {
            "drystone/_html/README.md"}
        self.assertEqual(of_package, expected)
        information = {Path(name).name for name in set(names) - of_package}
        self.assertEqual(information, {"METADATA", "WHEEL", "RECORD", "entry_points.txt"})

    def test_it_needs_nothing(self):
        metadata = zipfile.ZipFile(self.wheel).read("drystone-0.1.0.dist-info/METADATA").decode()
        self.assertNotIn("Requires-Dist", metadata)
        self.assertIn("Requires-Python: >=3.10", metadata)

    def test_the_versions_are_one(self):
        cargo = (PACKAGE.parent / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.*)"', cargo, re.MULTILINE).group(1)
        self.assertIn(f'"{version}"', (PACKAGE / "drystone/__init__.py").read_text())

    def test_installed_it_works(self):
        there = self.folder / "installed"
        done = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                   "--disable-pip-version-check", "--target", str(there), str(self.wheel))
        self.assertEqual(done.returncode, 0, done.stderr)
        code = ("import drystone, torch; drystone.enable(route='plugin');"
                "kept = torch.ones(3, device='cuda');"
                "drystone.report('page.html');"
                "print(drystone.library_path(), torch.cuda.memory_allocated())")
        done = run(sys.executable, "-c", code, folder=self.folder, PYTHONPATH=str(there),
                   DRYSTONE_LIBRARY=None)
        self.assertEqual(done.stdout, f"{there}/drystone/libdrystone.so 512\n", done.stderr)
        self.assertIn("GPU 0: ", (self.folder / "page.html").read_text())
        done = run(str(there / "bin/drystone-run"), "--route", "plugin", sys.executable, "-c",
                   "import torch; print(torch.cuda.get_allocator_backend())",
                   folder=self.folder, PYTHONPATH=str(there), DRYSTONE_LIBRARY=None)
        self.assertEqual(done.stdout, "pluggable\n", done.stderr)
        # Compiled from what is installed, and nothing else.
        code = ("import drystone, torch; drystone.enable();"
                "print(torch.ones(3, device='cuda').numel(), torch.cuda.get_allocator_backend())")
        done = run(sys.executable, "-c", code, folder=self.folder, PYTHONPATH=str(there),
                   DRYSTONE_LIBRARY=None, DRYSTONE_CACHE=str(self.folder / "cache"))
        self.assertEqual(done.stdout, "3 drystone\n", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
