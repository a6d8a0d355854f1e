"""How a program is started: by itself, or by a launcher of many ranks.

A launcher is run as a module of this interpreter, so that what it starts is watched too; a notebook
by a script that runs its cells. Invariant: there are as many devices as ranks on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from . import _notebook
from ._errors import SimError

# Modules by the commands that people know them by.
LAUNCHERS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
}
# How launchers are told the number of ranks, with `-` or `_` between words.
COUNTS = ("--nproc-per-node", "--num-processes")


def check(program: str, is_module: bool) -> None:
    """Says what is wrong with a program that is not there, and what a notebook does without."""
    if is_module or program in LAUNCHERS:
        return
    if Path(program).exists():
        _check_notebook(program)
        return
    hint = (": name the script itself, without the interpreter"
            if Path(program).name.startswith("python") else "; a module is named after -m")
    raise SimError(f"there is no script {program} here{hint}")


def _check_notebook(program: str) -> None:
    if not program.endswith(_notebook.ENDING):
        return
    try:
        cells = _notebook.read(Path(program))
    except (OSError, ValueError) as error:
        raise SimError(f"{program} {error}") from error
    if told := _notebook.left_out(cells):
        print(f"drystone: {program}: {told}", file=sys.stderr)


def command(program: str, arguments: Sequence[str], is_module: bool, ranks: int | None,
            ) -> tuple[list[str], int]:
    """What to run, and how many ranks it has on this machine."""
    module = None if is_module else LAUNCHERS.get(program)
    if module is not None:
        return [sys.executable, "-m", module, *arguments], ranks or _told(arguments)
    start = ["-m", program] if is_module else [program]
    if start[0].endswith(_notebook.ENDING):
        start.insert(0, _notebook.__file__)
    if ranks is not None and ranks > 1:
        start = ["-m", LAUNCHERS["torchrun"], "--standalone", "--nproc-per-node", str(ranks),
                 *start]
    return [sys.executable, *start, *arguments], ranks or 1


def _told(arguments: Sequence[str]) -> int:
    """The number that a launcher is told, or one."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") in COUNTS:
            text = value if equals else next(iter(arguments[at + 1:]), "")
            if text.isdecimal() and int(text) > 0:
                return int(text)
    return 1
