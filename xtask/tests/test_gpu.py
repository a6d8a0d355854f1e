"""The script that runs a pack on a GPU, `xtask/gpu/run`: one failure is not the end of the others.
None of these runs finds a driver."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).resolve().parents[1] / "gpu/run"


def run(out, *arguments, **environment):
    """The script, for a folder of results: how it ended, with what it printed."""
    return subprocess.run(
        [sys.executable, "-B", RUN, *arguments, "--out", out], capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": "/nowhere", **environment})


def steps(out):
    """The steps of results, and what came of each."""
    results = json.loads((Path(out) / "results.json").read_text())
    return {step["name"]: step["status"] for step in results["steps"]}


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.out = self.folder / "out"

    def runs(self, out, *arguments, **environment):
        """What it prints where it must succeed."""
        done = run(out, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rewrite(self, old, new):
        file = self.out / "results.json"
        file.write_text(file.read_text().replace(old, new, 1))

    def test_every_step_is_tried_and_told_of_where_nothing_can_work(self):
        # Neither programs nor a driver: those fail, and what needs the driver says so.
        self.assertEqual(run(self.out).returncode, 1)
        told = steps(self.out)
        self.assertEqual(list(told), self.runs(self.out, "--list").split())
        page = (self.out / "results.html").read_text()
        for name, status in told.items():
            self.assertNotEqual(status, "passed", name)
            self.assertIn(f'<h2 id="{name}">', page)
        self.assertEqual((told["suite"], told["growth"]), ("failed", "skipped"))

    def test_a_run_goes_on_where_one_before_it_ended(self):
        run(self.out, "probe", "ranges")
        # One is there already; to the other no time is left.
        again = ["--minutes", "0", "probe", "growth"]
        said = self.runs(self.out, *again)
        self.assertEqual(list(steps(self.out)), ["probe", "ranges"])
        _, missed = said.split("NOT REACHED", 1)
        self.assertIn("growth (prices)", missed)
        self.assertNotIn("probe (", missed)
        # Results of another pack, device or driver are no beginning of this one's.
        self.rewrite('"pack": "', '"pack": "another ')
        run(self.out, *again)
        self.assertEqual(steps(self.out), {})

    def test_the_step_that_a_run_ended_in_goes_last(self):
        """A step may end the machine: it goes last the second time."""
        run(self.out, "growth")
        self.rewrite("{", '{"running": "probe",')
        again = ["probe", "ranges", "growth"]
        self.runs(self.out, *again)
        self.assertEqual(list(steps(self.out)), ["growth", "ranges", "probe"])
        # What is torn costs what it told, and nothing else.
        (self.out / "results.json").write_text('{"steps": [')
        self.runs(self.out, *again)
        self.assertEqual(len(steps(self.out)), 3)

    def test_a_folder_that_takes_nothing_is_told_before_any_step(self):
        done = run("/dev/null/results", "probe")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--out names a folder for the results", done.stderr)
        self.assertNotIn("probe", done.stdout)

    def test_results_that_cannot_be_written_later_cost_no_step(self):
        (self.out / "results.json").mkdir(parents=True)
        told = self.runs(self.out, "probe")
        self.assertIn("results.json is not written", told)
        self.assertIn("probe (", told.split("NOT ASKED", 1)[1])
        self.assertTrue((self.out / "results.html").exists())
