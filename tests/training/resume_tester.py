"""What the tests of runs that end early share: a process that kills itself at a given place, and how ends compare."""

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import CONTEXT
from rich.console import Console

from suture.cli import main
from suture.models.encoder_weights import read_tensors
from suture.training.callbacks import StageProgress
from suture.training.config import Config
from suture.training.run_folder import read_curve
from suture.training.train import train


def begin(config: Config, folder: Path, pattern: str | None = None, count: int = 1) -> Any:
    """Start a run, or go on with it, in a process of its own.

    It kills itself (SIGKILL) where the n-th file of a pattern is written but not yet renamed: always at the same place.
    """
    process = CONTEXT.Process(target=_train, args=(config, folder, pattern, count))
    process.start()
    return process


def killed(config: Config, folder: Path, pattern: str, count: int = 1) -> bool:
    """Start a run and wait for its end; give whether it was killed there."""
    process = begin(config, folder, pattern, count)
    process.join()
    return process.exitcode == -signal.SIGKILL


class Interrupted(BaseException):
    """Ends a run inside this process, where `killed` would kill it."""


def interrupted(config: Config, folder: Path, pattern: str, count: int = 1) -> bool:
    """Start a run in this process; return whether it ended where the n-th file of a pattern is not yet renamed."""

    def interrupt() -> None:
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", _replace_or(interrupt, folder, pattern, count))
        try:
            train(config, folder, Console(quiet=True))
        except Interrupted:
            return True
    return False


def begin_command(words: list[str], said: Path) -> tuple[Any, Connection]:
    """Start a command in a process and a session of its own, with its errors in a file.

    Over the connection it tells of each batch, and waits for an answer.
    """
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_command, args=(words, said, there))
    process.start()
    return process, here


def _command(words: list[str], said: Path, connection: Connection) -> None:
    os.setsid()
    with said.open("w") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    at_end = StageProgress.on_step_end

    def wait(*arguments: Any) -> None:
        at_end(*arguments)
        connection.send("a batch")
        connection.recv()

    StageProgress.on_step_end = wait  # type: ignore[method-assign]
    sys.argv = ["suture", *words]
    main()


def _train(config: Config, folder: Path, pattern: str | None, count: int) -> None:
    if pattern:
        os.replace = _replace_or(lambda: os.kill(os.getpid(), signal.SIGKILL), folder, pattern, count)
    train(config, folder, Console(quiet=True))


def _replace_or(end: Callable[[], object], folder: Path, pattern: str, count: int) -> Any:
    """Build an `os.replace` that calls `end` at the n-th file of a pattern in a folder."""
    replace, left = os.replace, count

    def replace_or_end(temporary: Path, path: Path) -> None:
        nonlocal left
        if path.is_relative_to(folder) and path.relative_to(folder).match(pattern):
            left -= 1
            if not left:
                end()
        replace(temporary, path)

    return replace_or_end


def same(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same weights and saw the same losses on the way, each once."""
    a, b = (read_tensors(folder / "model.safetensors") for folder in (one, other))
    assert all(torch.equal(a[name], b[name]) for name in a | b)
    for curve in sorted(one.glob("stages/*/metrics.csv")):
        rows, others = (
            [
                (row["step"], row["loss"], row["lr"], row.get("taught"))
                for row in read_curve(folder / curve.relative_to(one))
            ]
            for folder in (one, other)
        )
        assert rows == others
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    return True
