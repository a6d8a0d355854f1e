"""Runs PyTorch's own tests of CUDA's memory under PyTorch's allocator and under Drystone.

    python torch_tests.py CHECKOUT [--file NAME ...] [-k WORD ...]

Told is each test that passes with PyTorch's own allocator and not with Drystone; those that need
kernels pass with neither on the simulated device. Tests share a process; those that differ run once
more, each in a process of its own, and only what differs then counts. No file of the checkout is
changed or kept.
"""

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FILES = ("test_cuda.py", "test_cuda_multigpu.py", "test_cuda_expandable_segments.py")
# A test that takes longer is ended, with its process.
TEST_S = 60
MODES = ("native", "drystone")
PASSED, SKIPPED, ENDED = "passed", "skipped", "the process ended"


class OutcomeLog(unittest.TestResult):
    """Writes what becomes of each test to a file, at once."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def _tell(self, test, outcome, text=""):
        print(json.dumps([test.id(), outcome, text]), file=self._file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        signal.alarm(TEST_S)
        self._outcome = (PASSED, "")
        self._tell(test, ENDED)

    def stopTest(self, test):
        signal.alarm(0)
        self._tell(test, *self._outcome)
        super().stopTest(test)

    def addError(self, test, error):
        self._outcome = ("failed", self._exc_info_to_string(error, test))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addSkip(self, test, reason):
        if self._outcome[0] == PASSED:
            self._outcome = (SKIPPED, reason)

    def addExpectedFailure(self, test, error):
        pass

    def addUnexpectedSuccess(self, test):
        self._outcome = ("failed", "an unexpected success")


def tests_of(module):
    """Every test of a module. Its own way to load them wants it to be the program."""
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase):
            yield from unittest.TestLoader().loadTestsFromTestCase(kind)


def work(path, results, words, done):
    """Runs the tests of a file that are not done, in this process."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with open(results, "a") as file:
        told = OutcomeLog(file)
        for test in tests_of(module):
            name = test.id()
            if name not in done and (not words or any(word in name for word in words)):
                test(told)


def run(path, mode, words, folder):
    """What became of each test of a file, with as many processes as it takes."""
    results = Path(folder) / f"{path.stem}.{mode}"
    results.touch()
    while True:
        found = read(results)
        done = Path(folder) / "done"
        done.write_text(json.dumps(list(found)))
        command = [sys.executable, "-B"]
        command += ["-m", "drystone"] if mode == "drystone" else []
        command += [__file__, str(path), "--work", str(results), "--done", str(done)]
        command += [part for word in words for part in ("-k", word)]
        ended = subprocess.run(
            command, cwd=path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace")
        now = read(results)
        if ended.returncode == 0 or len(now) == len(found):
            if ended.returncode != 0:
                print(f"{path.name}, {mode}: {ended.stderr[-2000:]}", flush=True)
            return now
        # The one that was running ended the process, or took too long.
        last = list(now)[-1]
        now[last][1] = now[last][1] or ended.stderr[-2000:]


def read(results):
    """Outcomes and texts by test, in the order they ran."""
    found = {}
    for line in results.read_text().splitlines():
        name, outcome, text = json.loads(line)
        found[name] = [outcome, text]
    return found


def differences(path, words, folder):
    """What only native passes, with Drystone's text; how many it passes, and of how many."""
    native, own = (run(path, mode, words, folder) for mode in MODES)
    passed = [name for name, (outcome, _) in native.items() if outcome == PASSED]
    suspects = [name for name in passed if own.get(name, [SKIPPED])[0] != PASSED]
    differ = {}
    for name in suspects:
        with tempfile.TemporaryDirectory() as alone:
            outcomes = [run(path, mode, [name], alone).get(name, [ENDED, ""]) for mode in MODES]
        if outcomes[0][0] == PASSED != outcomes[1][0]:
            differ[name] = outcomes[1]
    return differ, len(passed), len(native)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--file", action="append")
    parser.add_argument("-k", dest="words", action="append", default=[])
    parser.add_argument("--work")
    parser.add_argument("--done", type=Path)
    given = parser.parse_args()
    if given.work:
        # Its own modules read the command line.
        sys.argv = sys.argv[:1]
        return work(given.checkout, given.work, given.words, json.loads(given.done.read_text()))
    failed = False
    folder = given.checkout.resolve() / "test"
    if not any((folder / file).exists() for file in given.file or FILES):
        sys.exit(f"{folder} has none of these: {', '.join(given.file or FILES)}")
    for file in given.file or FILES:
        path = folder / file
        if not path.exists():
            print(f"{file}: not in this checkout", flush=True)
            continue
        with tempfile.TemporaryDirectory() as results:
            differ, passed, total = differences(path, given.words, results)
        print(f"{file}: of {total} tests {passed} pass natively, of these {passed - len(differ)} "
              "with drystone", flush=True)
        for name, (outcome, text) in differ.items():
            failed = True
            print(f"{name}: {outcome}\n{text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
