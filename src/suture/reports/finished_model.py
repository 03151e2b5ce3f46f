"""FinishedModel: masks and statistics from the final model of a run."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F

from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.read_scenes import read_scenes
from suture.evaluation.metrics import agreement
from suture.evaluation.scoring import predict_masks
from suture.models.inference import predict_probabilities
from suture.models.model_files import WEIGHTS
from suture.models.segmenter import Segmenter
from suture.prediction.open_network import read_training_notes
from suture.reports.frame_choice import FrameKey
from suture.reports.reported_run import ReportedRun
from suture.training.distributed import Processes

Progress = Callable[[int], None]
"""Function that is called with the number of finished frames."""


@dataclass(frozen=True)
class FrameStatistics:
    """Statistics of a model's predictions, one value per frame."""

    indices: list[int]
    areas: np.ndarray
    """Share of the view that each class covers, N × classes."""
    confidence: np.ndarray
    """Probability of the predicted class, mean over the view."""
    entropy: np.ndarray
    """Entropy of the class probabilities, mean over the view; 1 is the maximum."""
    consistency: np.ndarray
    """Mean IoU with the prediction of the frame before; NaN if that frame was not predicted."""

    def mean(self, name: str) -> float | None:
        """Return the mean of a statistic over the frames that have it."""
        values = getattr(self, name)
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None


class FinishedModel:
    """Final segmenter of a run, on the best device at hand, with the run's evaluation settings."""

    def __init__(self, run: ReportedRun) -> None:
        self.run = run
        self.size = run.config.data.height_width

    @cached_property
    def processes(self) -> Processes:
        return Processes.start(self.run.config.compute.model_copy(update={"accelerator": "auto"}))

    @cached_property
    def segmenter(self) -> Segmenter:
        return self.run.segmenter().to(self.processes.device).eval()

    def masks(
        self, videos: Mapping[str, Video], frames: Mapping[str, Sequence[int]], progress: Progress = lambda done: None
    ) -> Iterator[tuple[FrameKey, np.ndarray]]:
        """Predict class ids of frames at native resolution, `IGNORE` outside the view, one frame at a time."""
        batch = self.run.config.evaluation.batch
        for name, indices in frames.items():
            for index, ids in predict_masks(
                self.segmenter, videos[name], indices, self.size, batch=batch, **self._options
            ):
                progress(1)
                yield (name, index), ids

    def statistics(
        self, video: Video, indices: Sequence[int], progress: Progress = lambda done: None
    ) -> FrameStatistics:
        """Predict frames at the model's input size and return their statistics."""
        device, classes = self.processes.device, self.segmenter.classes
        inside = video.view.crop(video.view.mask(*video.size)).astype(np.uint8)
        inside = cv2.resize(inside, self.size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(bool)
        in_view = torch.from_numpy(inside).to(device)
        areas, confidence, entropy, consistency = [], [], [], []
        previous: tuple[int, np.ndarray] | None = None
        for part, scenes in read_scenes(video, indices, None, self.run.config.evaluation.batch):
            shares = predict_probabilities(
                self.segmenter, torch.from_numpy(scenes).to(device), self.size, **self._options
            )
            highest, ids = shares.max(1)
            areas.append(F.one_hot(ids[:, in_view], classes).float().mean(1))
            confidence.append(highest[:, in_view].mean(1))
            entropy.append(torch.special.entr(shares).sum(1)[:, in_view].mean(1) / math.log(max(2, classes)))
            for index, one in zip(part, ids.byte().cpu().numpy(), strict=True):
                mask = np.where(inside, one, np.uint8(IGNORE))
                follows = previous is not None and previous[0] == index - 1
                consistency.append(agreement(mask, previous[1], classes) if previous and follows else math.nan)
                previous = index, mask
            progress(len(part))
        means = [torch.cat(parts).cpu().numpy() for parts in (areas, confidence, entropy)]
        return FrameStatistics(list(indices), means[0], means[1], means[2], np.array(consistency))

    @property
    def _options(self) -> dict[str, Any]:
        evaluation = self.run.config.evaluation
        on_gpu = self.processes.device.type == "cuda"
        mirror = read_training_notes(self.run.folder / WEIGHTS)["mirror"]
        return {
            "flip": (mirror or range(self.segmenter.classes)) if evaluation.flip else None,
            "scales": evaluation.scales,
            "autocast": self.processes.autocast(self.run.config.compute) if on_gpu else None,
        }
