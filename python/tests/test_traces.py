"""The traces of the repository are what their descriptions say."""

import json
import shutil
import subprocess
import sys
import unittest

from support import FOLDER

TRACES = FOLDER.parents[1] / "traces"
# As many as a trace that is recorded here may take in the repository.
BYTES_MAX = 700_000
FIGURES = {"events": "events", "allocs": "allocations", "frees": "frees",
           "peak_live_bytes": "peak_requested_bytes", "distinct_sizes": "distinct_sizes"}

sys.path.insert(0, str(TRACES))
import record  # noqa: E402


class Traces(unittest.TestCase):
    @unittest.skipUnless(shutil.which("drystone"), "the drystone command is not on PATH")
    def test_descriptions_are_true(self):
        described = sorted(TRACES.rglob("*.json"))
        traces = sorted(TRACES.rglob("*.csv.zst"))
        self.assertEqual([path.stem for path in described],
                         [path.name.removesuffix(".csv.zst") for path in traces])
        done = subprocess.run(["drystone", "inspect", "--json", *traces], check=True,
                              capture_output=True, text=True, timeout=120)
        for path, told in zip(described, json.loads(done.stdout)["traces"], strict=True):
            about = json.loads(path.read_text())
            self.assertEqual(about["name"], path.stem)
            self.assertEqual({key: told["summary"][name] for key, name in FIGURES.items()},
                             {key: about[key] for key in FIGURES}, path.stem)
            self.assertIn(about["name"], (TRACES / "README.md").read_text())

    def test_what_is_recorded_is_there_and_small(self):
        self.assertEqual((len(record.RECORDED), len(record.HELD_BACK)), (12, 46))
        for name, (_, steps, note) in record.ALL.items():
            folder = record.folder_of(name)
            about = json.loads((folder / f"{name}.json").read_text())
            self.assertEqual((about["iterations"], about["note"]), (steps, note))
            size = (folder / f"{name}.csv.zst").stat().st_size
            self.assertEqual(about["file_bytes"], size)
            self.assertLess(size, BYTES_MAX)

    def test_every_event_takes_the_same_time(self):
        trace = "# made\nop,id,bytes,stream,time_ns\na,0,5,0,0\nm,0,0,0,17\nf,0,5,0,17\n"
        self.assertEqual(
            record.evenly_timed(trace),
            "# made\nop,id,bytes,stream,time_ns\na,0,5,0,0\nm,0,0,0,4000\nf,0,5,0,8000\n")

    def test_a_name_that_is_none_is_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^no trace gpt5; there are vit_large_varying_batch, "):
            record.main(["gpt5"])


if __name__ == "__main__":
    sys.exit(unittest.main())
