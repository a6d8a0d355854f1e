"""The guides' blocks of Python are one program, which runs as written."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

from support import FOLDER, run

DOCUMENTS = FOLDER.parents[1] / "docs/use"


def blocks(name):
    text = (DOCUMENTS / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Guides(unittest.TestCase):
    def test_the_program_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "guide.py").write_text("\n".join(blocks("oom-guide.md")))
            done = run(sys.executable, "-B", "guide.py", folder=Path(folder))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(Path(folder, "snapshot.pickle").exists())
        for part in ("What there is room for", "a batch of ", "PyTorch CUDA memory summary"):
            self.assertIn(part, done.stdout)

    def test_the_translation_has_the_same_program(self):
        self.assertEqual(blocks("oom-guide.zh.md"), blocks("oom-guide.md"))
        self.assertGreater(len(blocks("oom-guide.md")), 5)


if __name__ == "__main__":
    sys.exit(unittest.main())
