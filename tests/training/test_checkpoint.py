"""How often a checkpoint is written."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from suture.training import callbacks
from suture.training.callbacks import CHECKPOINT_DUE, Checkpoint

EVERY_STEP = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("max_age", "agree", "steps"),
    [
        (60, None, [5, 10]),
        (0, None, EVERY_STEP),
        (60, lambda own: max(own, CHECKPOINT_DUE), EVERY_STEP),  # another process's clock is ahead
        (0, lambda own: max(own, 0), EVERY_STEP),
    ],
)
def test_every_few_steps_and_when_the_last_one_is_too_old(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    max_age: float,
    agree: Callable[[int], int] | None,
    steps: list[int],
) -> None:
    monkeypatch.setattr(callbacks, "MAX_CHECKPOINT_AGE_S", max_age)
    stage: Any = nn.Linear(1, 1)
    stage.total_steps, stage.last_loss = 12, torch.tensor(1.0)
    loop: Any = SimpleNamespace(stage=stage, step=0, is_first=True, state_dict=lambda: {"global_step": loop.step})
    checkpoint, written = Checkpoint(tmp_path / "last.ckpt", 5, agree), []
    checkpoint.on_start(loop)
    for loop.step in range(12):
        checkpoint.on_step_start(loop)
        if checkpoint.kept == loop.step and loop.step:
            written.append(torch.load(checkpoint.path, weights_only=True)["global_step"])
    assert written == steps
