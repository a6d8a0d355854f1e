"""What an ended run of the score leaves is kept, but for what it was writing: no PyTorch."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "score"))

import score  # noqa: E402


class Resumed(unittest.TestCase):
    def left(self, is_kept):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for share, text in enumerate(['{"number": "0"}\n{"numb', '{"number": "5"}\n']):
                Path(folder, f"timm-{share}.jsonl").write_text(text)
            Path(folder, "mlp-0.jsonl").write_text('{"number": "1"}\n')
            done = score.gathered("timm", folder, is_kept)
            self.assertEqual({file.name for file in folder.iterdir()}, {done.name, "mlp-0.jsonl"})
            return done.read_text()

    def test_whole_rows_are_kept(self):
        self.assertEqual(self.left(True), '{"number": "0"}\n{"number": "5"}\n')

    def test_all_are_run_anew_unless_asked_otherwise(self):
        self.assertEqual(self.left(False), "")
