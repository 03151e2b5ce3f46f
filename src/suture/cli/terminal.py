"""Output of the commands: two consoles, waiting lines, score tables and numbers from options."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from suture.core.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

out = Console()
err = Console(stderr=True)


def print_line(console: Console, line: str) -> None:
    """Print one line unchanged: a path may hold Rich's markup."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_next(*words: object) -> None:
    """Print the command that usually follows."""
    print_line(out, f"Next: {shlex.join(['suture', *map(str, words)])}")


def is_first_process() -> bool:
    """Test that this process prints, among those that torchrun or SLURM started."""
    return os.environ.get("RANK", "0") == "0"


def waiting(what: str = "Loading PyTorch") -> AbstractContextManager[Any]:
    """Show a spinner while slow imports or other uncounted work runs."""
    from suture.core.progress import waiting as spinner

    return spinner(what, err) if is_first_process() else nullcontext()


def print_scores(table: "Table", metrics: Sequence[dict[str, Any]]) -> None:
    """Print the score table of runs, and a caution where scores rest on few frames."""
    from suture.evaluation.sample_size import sample_size_warnings

    out.print(table)
    for sentence in sample_size_warnings(metrics):
        print_line(out, sentence)


def parse_numbers(option: str, value: str, example: str) -> list[int]:
    """Parse an option like `1920x1080` or `420,0,1080,1080`; the last two numbers are sides, so not 0."""
    mark = "x" if "x" in example else ","
    parts = value.lower().split(mark)
    numbers = [int(part) for part in parts if part.strip().isdecimal()]
    if len(numbers) != len(parts) or len(parts) != len(example.split(mark)) or 0 in numbers[-2:]:
        raise UserError(f"{option} is {value}, expected numbers such as {example}.")
    return numbers


def resume_command() -> str:
    """Command that continues the interrupted one; `predict` without --force, which would start anew."""
    arguments = sys.argv[1:]
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        return "start all processes again, by the same command"
    return shlex.join(["suture", *(word for word in arguments if not (word == "--force" and "predict" in arguments))])
