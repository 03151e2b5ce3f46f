"""The best weights instead of the last: chosen on validation videos, never on the test split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import BestRecord, read_record
from suture.models.model import load_model, save_model
from suture.models.segmenter import Segmenter


class Best(Callback):
    """Scores the segmenter every few steps and at the end, and keeps the weights that were best so far.

    What was best is on disk, so a resumed run goes on with it; scores that were made after the last checkpoint are made
    again and come out the same. They are by the same masks, of which `masks` gives the fingerprint.
    """

    def __init__(
        self, folder: Path, every: int, score: Callable[[Segmenter], float | None], masks: Callable[[], str]
    ) -> None:
        self.weights = folder / "best.safetensors"
        self.record = folder / "best.json"
        self.every = every
        self.score = score
        self.masks = masks

    def on_train_batch_start(self, trainer: L.Trainer, stage: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step and step % self.every == 0 and batch_idx % stage.settings.accumulate == 0:
            self._look(trainer, stage)

    def on_train_end(self, trainer: L.Trainer, stage: Any) -> None:
        self._look(trainer, stage)

    def _look(self, trainer: L.Trainer, stage: Any) -> None:
        best = read_record(self.record, BestRecord) if self.record.exists() else {"score": float("-inf")}
        modes = [(module, module.training) for module in stage.modules()]
        segmenter = stage.outcome()
        choosing, go_on = f"{stage.key}.best_every chooses weights", "then start the same command again to go on"
        try:
            masks = self.masks()
            same = best.get("masks", masks) == masks
            with torch.compiler.set_stance("force_eager"):  # blocks that were compiled for training
                value = self.score(segmenter) if same else None
        except UserError as error:
            raise UserError(f"{error} Found where {choosing}: mend it, {go_on}.") from error
        if not same:
            raise UserError(
                f"The validation masks by which {choosing} were changed since it began to: put them back as they were, "
                f"or remove {self.record} to choose from here on, {go_on}."
            )
        if value is None:
            raise UserError(
                f"The validation masks by which {choosing} show no class any more that is learnt and scored: put them "
                f"back as they were, {go_on}."
            )
        for module, training in modes:
            module.training = training
        if value > best["score"] and trainer.is_global_zero:
            save_model(segmenter, self.weights)
            write_json(self.record, {"step": trainer.global_step, "score": value, "masks": masks})

    def take(self, segmenter: Segmenter) -> dict[str, Any]:
        """Put the best weights into a segmenter; give their step and score."""
        segmenter.load_state_dict(load_model(self.weights, segmenter.describe()).state_dict())
        best = read_record(self.record, BestRecord)
        return {"step": best["step"], "score": best["score"]}
