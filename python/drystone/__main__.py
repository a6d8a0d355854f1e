"""`python -m drystone [--conf OPTIONS] SCRIPT ARGS...`, and the command `drystone-run`; and
`python -m drystone doctor`, which tells what is found here and what is off.

The first two become the program itself, in an environment in which every interpreter enables
Drystone when PyTorch is imported. Nothing of this process is left, so the program runs as it does without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ._command import DRY_RUN, dry_run
from ._errors import DrystoneError
from ._hook import environment
from ._routes import ROUTES


# What else there is, each with a help of its own.
OTHERS = """
python -m drystone doctor [--json]    what is found here, and what is off
python -m drystone dry-run SCRIPT     what a script would hold on a GPU, without one (drystone-sim)
drystone-run torchrun train.py        any command, and all that it starts
drystone --help                       inspect and compare recordings of memory
"""


def main() -> None:
    """`python -m drystone`: a script, or with -m a module, in this interpreter."""
    if sys.argv[1:2] == [DRY_RUN] and not os.path.exists(DRY_RUN):
        dry_run()
    # A script of that name is a script.
    if sys.argv[1:2] == ["doctor"] and not os.path.exists("doctor"):
        from ._doctor import main as examine
        sys.exit(examine(sys.argv[2:]))
    parser = _parser("python -m drystone")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-m", dest="kind", action="store_const", const=["-m"], default=[],
                      help="what follows is a module")
    kind.add_argument("-c", dest="kind", action="store_const", const=["-c"],
                      help="what follows is code")
    parser.add_argument(
        "command", nargs=argparse.PARSER, metavar="program ...",
        help="a script, as python takes it; or doctor, to tell what is off here")
    given = parser.parse_args()
    command = [sys.executable, *_flags(), *given.kind]
    if sys.flags.ignore_environment or sys.flags.no_site:
        print("drystone: not enabled: with -I, -E and -S Python starts without it; leave them out, "
              "or call drystone.enable() in the program", file=sys.stderr)
    _become([*command, *given.command], given)


def run() -> None:
    """`drystone-run`: any command, such as `torchrun train.py`."""
    parser = _parser("drystone-run")
    # Unlike two arguments, it leaves each `--` where it is.
    parser.add_argument(
        "command", nargs=argparse.PARSER, metavar="program ...", help="a command")
    given = parser.parse_args()
    _become(given.command, given)


def _flags() -> list[str]:
    """What this interpreter was told before the package's name, for the next one."""
    flags = subprocess._args_from_interpreter_flags()
    # Those that processes which others start go without.
    for name, value in sys._xoptions.items():
        option = f"-X{name}" if value is True else f"-X{name}={value}"
        if not any(name in flag for flag in flags):
            flags.append(option)
    if getattr(sys.stdout, "write_through", False):
        flags.append("-u")
    if sys.flags.inspect:
        flags.append("-i")
    return flags


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        name, description="Runs a program with Drystone as PyTorch's CUDA allocator.",
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=OTHERS)
    parser.add_argument(
        "--conf", metavar="KEY:VALUE,...", help="options, in place of DRYSTONE_CONF")
    parser.add_argument(
        "--route", choices=ROUTES, help="as drystone.enable(route=...)")
    return parser


def _become(command: list[str], given: argparse.Namespace) -> None:
    if given.conf:
        # A wrong option is told before anything runs.
        from . import _library
        try:
            _library.configure(given.conf)
        except DrystoneError as error:
            sys.exit(f"drystone: --conf: {error}")
    try:
        os.execvpe(command[0], command, environment(os.environ, given.conf, given.route))
    except OSError as error:
        sys.exit(f"drystone: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
