"""Public reports under each allocator: what `cargo xtask bugs` and `cargo xtask matrix` run.

    python bugs.py bugs|matrix LIBRARIES [--write] [NAME ...]

Lives here: the allocators, and the runs of a folder's programs, each in a process of its own on the
device that its comment names. A page holds what each came to, and is the only place that does: a
figure of Drystone's that is worse than there is an error, and so is any other that differs. What is
written into a page differs from what was read in figures alone.

A figure is a number and what it counts, `52.00 GiB`, `2 refused`, `17k tokens`; or words; or a
verdict and the MiB that were held, `pass 352`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

#: Of a program that did not live to say anything, and of one that ended otherwise and said nothing.
ENDS, FAILS = "process ends", "fails"
#: Of programs that do not run under an allocator, or show nothing there.
LEFT_OUT = "no pools", "not modelled"
#: Of these more is better, of all else less.
MORE_IS_BETTER = "tokens"
#: How much worse than the best is still near it.
NEAR = 0.05
#: How the row begins that counts the rows of all tables: those at best, and those that pass.
TALLIES = "| at best, or within 5 per cent of it |", "| pass |"


class Allocator(NamedTuple):
    """What `PYTORCH_ALLOC_CONF` has beside the program's own settings, and how Drystone comes in:
    by a route of the package, with options, or preloaded."""
    name: str
    setting: str = ""
    route: str = ""
    options: str = ""


POOLS = "backend:cudaMallocAsync"
NATIVE = Allocator("native")
EXPANDABLE = Allocator("expandable", "expandable_segments:True")
ASYNC = Allocator("cudaMallocAsync", POOLS)
COMPILED = Allocator("Drystone", route="compiled")
MEMORY = Allocator("prefer:memory", route="compiled", options="prefer:memory")
PLUG_IN = Allocator("plug-in", route="plugin")
PRELOADED = Allocator("preloaded", POOLS, "preloaded")
#: For each folder of programs the page that has what they come to, and its columns.
STUDIES = {
    "bugs": ("docs/evidence/bugs-2026.md",
             (NATIVE, EXPANDABLE, ASYNC, COMPILED, MEMORY, PRELOADED)),
    "matrix": ("docs/evidence/matrix.md",
               (NATIVE, EXPANDABLE, ASYNC, COMPILED, PRELOADED, PLUG_IN)),
}


def number(figure):
    """The number of a figure, and what it counts."""
    found = re.fullmatch(r"(pass )?(\d+(?:\.\d+)?)(k?)( .+)?", figure)
    if not found or bool(found[1]) == bool(found[4]):
        return None, ""
    return float(found[2]) * (1000 if found[3] else 1), (found[4] or " MiB")[1:]


def is_better(unit, one, other):
    return one > other if unit == MORE_IS_BETTER else one < other


def change(before, after):
    """How a figure compares with the one before, if not equal; what cannot be compared is worse."""
    # What is held by one that fails says nothing.
    if before == after or before.startswith("fail ") and after.startswith("fail "):
        return None
    failed = before == FAILS or before.startswith("fail ")
    if before == ENDS or failed and after.startswith("pass "):
        return "better"
    (was, counted), (now, unit) = number(before), number(after)
    is_same = was is not None and now is not None and counted == unit
    return "better" if is_same and is_better(unit, now, was) else "worse"


def is_at_best(best, figure):
    """Whether a figure is the best that there could be, or near it; none where it says that the
    program does not run there."""
    if figure in LEFT_OUT:
        return None
    if figure == FAILS or figure.startswith(("pass ", "fail ")):
        return figure.startswith("pass ")
    (least, counted), (now, unit) = number(best), number(figure)
    if least is None or now is None:
        return best == figure
    least *= 1 - NEAR if unit == MORE_IS_BETTER else 1 + NEAR
    return counted == unit and not is_better(unit, least, now)


class Row(NamedTuple):
    """What a program comes to at best, and what it came to, in the order of the allocators."""
    name: str
    right: str
    came_to: tuple[str, ...]

    def __str__(self):
        return " | ".join([f"| `{self.name}`", self.right, *self.came_to]) + " |"

    @classmethod
    def read(cls, line):
        """The row that a line is, if it is one."""
        found = re.fullmatch(r"\| `([^`]+)` \| (.+) \|", line)
        cells = found[2].split(" | ") if found else []
        return cls(found[1], cells[0], tuple(cells[1:])) if len(cells) == 7 else None


class Page:
    """A page, by lines; those that are rows are read."""

    def __init__(self, text):
        self.lines = [Row.read(line) or line for line in text.splitlines()]
        names = [row.name for row in self.rows()]
        if twice := [name for name in names if names.count(name) > 1]:
            sys.exit(f"the page has {twice[0]} twice")

    def rows(self):
        return [line for line in self.lines if isinstance(line, Row)]

    def put(self, row):
        """Puts a row instead of the one of its program."""
        self.lines = [row if isinstance(line, Row) and line.name == row.name else line
                      for line in self.lines]

    def text(self):
        return "".join(f"{self.tallied(str(line))}\n" for line in self.lines)

    def tallied(self, line):
        """A line, which may count the programs that come to the best of those that run there."""
        head = next((head for head in TALLIES if line.startswith(head)), None)
        if head is None:
            return line
        for figures in zip(*(row.came_to for row in self.rows())):
            told = [is_at_best(row.right, one) for row, one in zip(self.rows(), figures)]
            told = [one for one in told if one is not None]
            head += f" {sum(told)} of {len(told)} |"
        return head


def differences(allocators, page, now):
    """What differs from the page, and whether that is an error. Better is none where Drystone is,
    since its page is then merely modest; of the others the page may say nothing that is not so."""
    if page.right != now.right:
        yield True, f"error: {now.name}: right is {now.right}, by the page {page.right}"
    for allocator, before, after in zip(allocators, page.came_to, now.came_to):
        if word := change(before, after):
            is_error = word == "worse" or not allocator.route
            yield is_error, (f"{'error' if is_error else 'note'}: {now.name}, {allocator.name}: "
                             f"{after} is {word} than the page's {before}")


def setting(program, key):
    """A line of the comment at a program's top."""
    found = re.search(rf"^{key}: (.*)$", program, re.MULTILINE)
    return found[1] if found else ""


def came_to(program, libraries, allocator):
    """What a program came to under an allocator, and what is right where it says so."""
    text = program.read_text()
    # Of processes that share a device each run has its own.
    shared = ROOT / f"target/report-{allocator.name}-{os.getpid()}"
    paths = [ROOT / "bugs"]  # What all programs share is there.
    device = setting(text, "Device").replace("FILE", str(shared))
    environment = {**os.environ, "SIMCUDA_CONF": device}
    settings = filter(None, [setting(text, "Settings"), allocator.setting])
    environment["PYTORCH_ALLOC_CONF"] = ",".join(settings)
    for name in ("DRYSTONE_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment.pop(name, None)
    arguments = [sys.executable, "-B"]
    if allocator.route == "preloaded":
        environment["LD_PRELOAD"] = str(libraries / "libdrystone_preload.so")
    elif allocator.route:
        arguments += ["-m", "drystone", "--route", allocator.route]
        environment["DRYSTONE_CONF"] = allocator.options
        environment["DRYSTONE_LIBRARY"] = str(libraries / "libdrystone.so")
        paths.append(ROOT / "python")
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = subprocess.run([*arguments, program], env=environment, cwd=ROOT, text=True,
                          capture_output=True, errors="replace")
    shutil.rmtree(shared, ignore_errors=True)
    shared.unlink(missing_ok=True)
    if done.returncode < 0:
        return ENDS, ""
    if found := re.search(r"^came to: (.*?); right: (.*)$", done.stdout, re.MULTILINE):
        return found.groups()
    # A row, so that the others are told too.
    print(f"{program}, {allocator.name} ended with {done.returncode}:\n{done.stderr}",
          file=sys.stderr)
    return FAILS, ""


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask bugs|matrix")
    add = parser.add_argument
    add("study", choices=STUDIES, help=argparse.SUPPRESS)
    add("libraries", type=Path, help=argparse.SUPPRESS)
    add("names", nargs="*", help="these programs alone")
    add("--write", action="store_true", help="write what they came to into the page")
    asked = parser.parse_args()
    file, allocators = STUDIES[asked.study]
    page = Page((ROOT / file).read_text())
    known = [row.name for row in page.rows()]
    if unknown := set(asked.names).difference(known):
        sys.exit(f"{file} has no program {unknown.pop()}; it has {', '.join(known)}")
    heads = " | ".join(allocator.name for allocator in allocators)
    print(f"| program | at best | {heads} |\n{'| --- ' * 8}|", flush=True)
    wrong = 0
    for before in [row for row in page.rows() if row.name in (asked.names or known)]:
        program = ROOT / asked.study / f"{before.name}.py"
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            run = partial(came_to, program, asked.libraries)
            outcomes = list(pool.map(run, allocators))
        # PyTorch's own allocator counts all that the program has in use; the driver's does not
        # count the memory of graphs.
        right = next((right for _, right in outcomes if right), "")
        now = Row(before.name, right, tuple(figure for figure, _ in outcomes))
        print(now, flush=True)
        for is_error, text in differences(allocators, before, now):
            wrong += is_error
            print(text, file=sys.stderr, flush=True)
        page.put(now)
    if asked.write:
        (ROOT / file).write_text(page.text())
    elif wrong:
        sys.exit(f"{wrong} figures are not those of {file}; if they are to be: "
                 f"cargo xtask {asked.study} --write")


if __name__ == "__main__":
    main()
