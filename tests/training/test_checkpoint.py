"""How often a checkpoint is written, and where."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from suture.training import callbacks
from suture.training.callbacks import LATE, Checkpoint
from suture.training.config import Config


def test_it_is_written_into_its_folder_alone(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lightning writes into the folder for temporary files first: it may be small, or full, and is another disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    train_quietly(supervised("compute.checkpoint_every=1"), tmp_path / "run")


@pytest.mark.parametrize(
    ("longest", "agree", "steps"),
    [
        (60, None, [5, 10]),
        (0, None, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (60, lambda own: max(own, LATE), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),  # another process's clock is ahead
        (0, lambda own: max(own, 0), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ],
)
def test_every_few_steps_and_where_they_are_slow_every_minute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    longest: float,
    agree: Callable[[int], int] | None,
    steps: list[int],
) -> None:
    monkeypatch.setattr(callbacks, "LONGEST", longest)
    written: list[int] = []

    def save(path: Path) -> None:
        written.append(trainer.global_step)
        path.touch()

    trainer: Any = SimpleNamespace(global_step=0, is_global_zero=True, save_checkpoint=save)
    stage: Any = nn.Linear(1, 1)
    stage.settings, stage.last_loss = SimpleNamespace(accumulate=1), torch.tensor(1.0)
    checkpoint = Checkpoint(tmp_path / "last.ckpt", 5, agree)
    checkpoint.on_train_start(trainer, stage)
    for trainer.global_step in range(12):
        checkpoint.on_train_batch_start(trainer, stage, None, trainer.global_step)
    assert written == steps
