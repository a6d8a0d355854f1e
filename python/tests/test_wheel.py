"""The wheel: what is in it, and that it installs and works without the source."""

import re
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from support import FOLDER, run

sys.path.insert(0, str(FOLDER.parent))
import build_wheel  # noqa: E402


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.name = build_wheel.build_wheel(folder.name)

    def test_contents(self):
        self.assertRegex(self.name, r"^drystone-0\.1\.0-py3-none-linux_\w+\.whl$")
        names = zipfile.ZipFile(self.folder / self.name).namelist()
        for name in ("__init__.py", "__main__.py", "_start/sitecustomize.py", "libdrystone.so",
                     "_cpp/drystone_torch.cpp", "_cpp/drystone.h", "_cpp/cuda/cuda.h"):
            self.assertIn(f"drystone/{name}", names)
        self.assertFalse([name for name in names if "test" in name or name.endswith(".pyc")])

    def test_the_versions_are_one(self):
        cargo = (FOLDER.parents[1] / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.*)"', cargo, re.MULTILINE).group(1)
        self.assertEqual(build_wheel.VERSION, version)
        self.assertIn(f'version = "{version}"', (FOLDER.parent / "pyproject.toml").read_text())
        self.assertIn(f'"{version}"', (FOLDER.parent / "drystone/__init__.py").read_text())

    def test_installed_it_works(self):
        there = self.folder / "installed"
        done = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                   "--disable-pip-version-check", "--target", str(there),
                   str(self.folder / self.name))
        self.assertEqual(done.returncode, 0, done.stderr)
        code = ("import drystone, torch; drystone.enable(); kept = torch.ones(3, device='cuda');"
                "print(drystone.library_path(), torch.cuda.memory_allocated())")
        done = run(sys.executable, "-c", code, folder=self.folder, PYTHONPATH=str(there),
                   DRYSTONE_LIBRARY=None)
        self.assertEqual(done.stdout, f"{there}/drystone/libdrystone.so 512\n", done.stderr)
        done = run(str(there / "bin/drystone-run"), sys.executable, "-c",
                   "import torch; print(torch.cuda.get_allocator_backend())",
                   folder=self.folder, PYTHONPATH=str(there), DRYSTONE_LIBRARY=None)
        self.assertEqual(done.stdout, "pluggable\n", done.stderr)
        # Compiled from what is installed, and nothing else.
        code = ("import drystone, torch; drystone.enable(native=True);"
                "print(torch.ones(3, device='cuda').numel(), torch.cuda.get_allocator_backend())")
        done = run(sys.executable, "-c", code, folder=self.folder, PYTHONPATH=str(there),
                   DRYSTONE_LIBRARY=None, DRYSTONE_CACHE=str(self.folder / "cache"))
        self.assertEqual(done.stdout, "3 drystone\n", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
