"""The best weights instead of the last: chosen on validation videos, never on the test split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from suture.files import write_json
from suture.models.segmenter import Segmenter
from suture.models.weights import load_model, save_model
from suture.records import BestRecord, read_record


class Best(Callback):
    """Scores the segmenter every few steps and at the end, and keeps the weights that were best so far.

    What was best is on disk, so a resumed run goes on with it; scores that were made after the last checkpoint are made
    again and come out the same.
    """

    def __init__(self, folder: Path, every: int, score: Callable[[Segmenter], float]) -> None:
        self.weights = folder / "best.safetensors"
        self.record = folder / "best.json"
        self.every = every
        self.score = score

    def on_train_batch_start(self, trainer: L.Trainer, stage: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step and step % self.every == 0 and batch_idx % stage.settings.accumulate == 0:
            self._look(trainer, stage)

    def on_train_end(self, trainer: L.Trainer, stage: Any) -> None:
        self._look(trainer, stage)

    def _look(self, trainer: L.Trainer, stage: Any) -> None:
        modes = [(module, module.training) for module in stage.modules()]
        segmenter = stage.outcome()
        with torch.compiler.set_stance("force_eager"):  # blocks that were compiled for training
            value = self.score(segmenter)
        for module, training in modes:
            module.training = training
        best = read_record(self.record, BestRecord)["score"] if self.record.exists() else float("-inf")
        if value > best and trainer.is_global_zero:
            save_model(segmenter, self.weights)
            write_json(self.record, {"step": trainer.global_step, "score": value})

    def take(self, segmenter: Segmenter) -> dict[str, Any]:
        """Put the best weights into a segmenter; give their step and score."""
        segmenter.load_state_dict(load_model(self.weights, segmenter.describe()).state_dict())
        return read_record(self.record, BestRecord)
