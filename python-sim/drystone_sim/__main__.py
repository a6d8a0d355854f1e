"""`drystone-sim`: programs on a simulated GPU, and what they would hold of a real one.

Results go to standard output, all else to standard error. A dry run ends with 0 where the program
fits, with 1 where it does not or may not, and with 2 where it could not be told.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from . import _dry_run, _find, _gpus, _launch, _libraries, _render, _report
from ._errors import SimError

DEFAULT_GPU = "a100-40gb"


def main(arguments: list[str] | None = None) -> int:
    """`drystone-sim COMMAND`."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.do(given))
    except SimError as error:
        print(f"drystone: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("drystone: interrupted", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0


def entry() -> None:
    """The command `drystone-sim`."""
    sys.exit(main())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "drystone-sim", description="Programs on a simulated GPU, on a machine that has none.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    dry = commands.add_parser("dry-run", help="say what a PyTorch program would hold, and whether "
                                              "it fits", usage=USAGE)
    dry.set_defaults(do=_do_dry_run)
    dry.add_argument("--gpu", default=DEFAULT_GPU, metavar="NAME|SIZE",
                     help=f"as `drystone-sim gpus` lists, or 24GiB [{DEFAULT_GPU}]")
    dry.add_argument("--steps", type=_positive, default=3, metavar="K",
                     help="optimizer steps, or drystone_sim.step(), after which it ends [3]")
    dry.add_argument("--ranks", type=_positive, metavar="N",
                     help="processes, each with a device, as torchrun starts them [1, or what a "
                          "launcher is told]")
    dry.add_argument("--values", type=_values, default="zeros", metavar="zeros|ones|random:SEED",
                     help="what the program reads back from the device [zeros]")
    dry.add_argument("--find", metavar="ARG=LOW..HIGH", type=_find.parse,
                     help="the largest value of the program's option --ARG that fits")
    dry.add_argument("--allocator", choices=_dry_run.ALLOCATORS, default="native", type=_allocator,
                     help="whose verdict --find and the exit code go by [native]")
    dry.add_argument("--limited", action="store_true",
                     help="memory ends where the device's does: for programs that catch out of "
                          "memory and go on with less")
    dry.add_argument("--record", metavar="FOLDER", type=Path,
                     help="leave each rank's recording there, as a snapshot of PyTorch's and as "
                          "a Parquet table")
    dry.add_argument("--json", action="store_true", help="JSON in place of tables")
    dry.add_argument("--html", metavar="FILE", type=Path, help="write one page")
    dry.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    # Unlike two arguments, it leaves each `--` where it is.
    dry.add_argument("command", nargs=argparse.PARSER, metavar="PROGRAM ...",
                     help="a script, a notebook, or with -m a module; or torchrun or accelerate "
                          "with what they start")
    run = commands.add_parser("run", help="run any command with the simulated driver in front")
    run.set_defaults(do=_do_run)
    _add_device(run)
    run.add_argument("command", nargs=argparse.REMAINDER)
    test = commands.add_parser("pytest", help="pytest with the simulated driver in front")
    test.set_defaults(do=_do_pytest)
    _add_device(test)
    test.add_argument("command", nargs=argparse.REMAINDER)
    gpus = commands.add_parser("gpus", help="list the GPUs that have a name")
    gpus.set_defaults(do=_do_gpus)
    return parser


USAGE = "drystone-sim dry-run [options] [-m] PROGRAM [ARGS...]"


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", default=DEFAULT_GPU, metavar="NAME|SIZE")
    parser.add_argument("--conf", default="", metavar="KEY:VALUE,...",
                        help="more settings of the device: docs/use/simcuda.md lists them")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _allocator(text: str) -> str:
    return next((name for name in _dry_run.ALLOCATORS if name.lower() == text.lower()), text)


def _values(text: str) -> str:
    kind, colon, seed = text.partition(":")
    if text in ("zeros", "ones") or kind == "random" and (not colon or seed.isdecimal()):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not zeros, ones or random:SEED")


def _do_dry_run(given: argparse.Namespace) -> int:
    # Who ends it means the program, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gpu = _gpus.find(given.gpu)
    program, *arguments = given.command
    _launch.check(program, given.module)
    command, ranks = _launch.command(program, arguments, given.module, given.ranks)
    request = _dry_run.Request(command, gpu, given.steps, given.values, ranks, given.record,
                               is_limited=given.limited)
    at = _dry_run.ALLOCATORS.index(given.allocator)
    if given.find:
        found = _find.find(request, given.find, at)
        outcome, note = found.outcome, found.text
    else:
        outcome, note = _dry_run.dry_run(request), ""
    tables, title = _report.tables(outcome), _report.title(outcome)
    title = f"{note}\n\n{title}" if note else title
    if given.json:
        print(json.dumps({**_report.as_json(outcome), "found": note or None}, indent=1))
    else:
        print(_render.text(title, tables))
    if given.html:
        try:
            given.html.write_text(_render.page(title, tables), encoding="utf-8")
        except OSError as error:
            raise SimError(f"cannot write {given.html}: {error}") from error
    if outcome.code:
        raise SimError(f"the program ended with code {outcome.code}: what it would need beyond "
                       "that point is not known")
    return 0 if outcome.fits(at) else 1


def _do_run(given: argparse.Namespace) -> int:
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise SimError("say what to run: drystone-sim run python train.py")
    gpu = _gpus.find(given.gpu)
    device = f"{gpu.settings_of_running()},{given.conf}".rstrip(",")
    try:
        os.execvpe(command[0], command, _libraries.preloaded(os.environ, device))
    except OSError as error:
        raise SimError(f"cannot run {command[0]}: {error.strerror}") from error


def _do_pytest(given: argparse.Namespace) -> int:
    given.command = [sys.executable, "-m", "pytest", *given.command]
    return _do_run(given)


def _do_gpus(given: argparse.Namespace) -> int:
    rows: list[list[str | float]] = [
        [gpu.name, gpu.model, "" if gpu.nvml is None else f"{gpu.nvml >> 20:,}",
         _render.range_text(gpu.cuda), gpu.compute, str(gpu.multiprocessors),
         _render.range_text(gpu.context), gpu.source]
        for gpu in _gpus.table()]
    print(_render.text("GPUs that have a name", [_render.Table(
        "", ["name", "model", "NVML MiB", "CUDA", "compute", "SMs", "context", "source"], rows)]))
    return 0


if __name__ == "__main__":
    entry()
