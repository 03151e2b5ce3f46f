"""BestWeights: keeps the weights with the best score on the validation videos."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from suture.core.errors import UserError
from suture.core.io import write_json
from suture.core.schemas import BestRecord, read_record
from suture.models.model import load_model, save_model
from suture.models.segmenter import Segmenter
from suture.training.loop import Callback, TrainingLoop


class BestWeights(Callback):
    """Scores the segmenter every few steps and at the end, and keeps the best weights on disk.

    A resumed run repeats the scores since its last checkpoint, with equal results.

    Args:
        folder: Folder of the stage.
        every: Steps between two scores.
        score: Score of a segmenter on the validation videos; None if nothing can be scored.
    """

    def __init__(self, folder: Path, every: int, score: Callable[[Segmenter], float | None]) -> None:
        self.weights = folder / "best.safetensors"
        self.record = folder / "best.json"
        self.every = every
        self.score = score

    def on_step_start(self, loop: TrainingLoop) -> None:
        if loop.step and loop.step % self.every == 0:
            self._compare(loop)

    def on_end(self, loop: TrainingLoop) -> None:
        self._compare(loop)

    def _compare(self, loop: TrainingLoop) -> None:
        """Score the current weights, and save them if they are the best so far."""
        stage = loop.stage
        best = read_record(self.record, BestRecord) if self.record.exists() else {"score": float("-inf")}
        modes = [(module, module.training) for module in stage.modules()]
        segmenter = stage.outcome()
        with torch.compiler.set_stance("force_eager"):  # blocks that were compiled for training
            value = self.score(segmenter)
        if value is None:
            raise UserError(
                f"The validation masks, by which {stage.key}.best_every chooses weights, show no class that is learnt "
                "and scored: put them back, then start the same command again."
            )
        for module, training in modes:
            module.training = training
        if value > best["score"] and loop.is_first:
            save_model(segmenter, self.weights)
            write_json(self.record, {"step": loop.step, "score": value})

    def load_into(self, segmenter: Segmenter) -> dict[str, Any]:
        """Load the best weights into a segmenter; return their step and score."""
        segmenter.load_state_dict(load_model(self.weights, segmenter.describe()).state_dict())
        best: dict[str, Any] = read_record(self.record, BestRecord)
        return best
