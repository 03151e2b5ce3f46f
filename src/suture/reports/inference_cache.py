"""Finished models at work: their masks, and what they say of frames whose truth nobody knows."""

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
from suture.models.inference import probabilities
from suture.models.segmenter import Segmenter
from suture.reports.run_facts import RunFacts
from suture.training.distributed import Processes

Place = tuple[str, int]
"""Video and index of a frame."""
Progress = Callable[[int], None]
"""Called with the number of frames that were done."""


@dataclass(frozen=True)
class Watched:
    """What a model says of some frames of a video, in numbers; a value per frame."""

    indices: list[int]
    areas: np.ndarray
    """N × classes: the share of the view that each class covers."""
    confidence: np.ndarray
    """The probability of the predicted class, mean over the view."""
    entropy: np.ndarray
    """Of the class probabilities, mean over the view; 1 is as unsure as can be."""
    consistency: np.ndarray
    """Mean IoU with the prediction of the frame before; NaN where that one was not looked at."""


class FinishedModel:
    """A finished run's segmenter on the best device that is here, used as the run's evaluation uses it."""

    def __init__(self, run: RunFacts) -> None:
        self.run = run
        self.size = run.config.data.height_width

    @cached_property
    def processes(self) -> Processes:
        return Processes.start(self.run.config.compute.model_copy(update={"accelerator": "auto"}))

    @cached_property
    def segmenter(self) -> Segmenter:
        return self.run.run.segmenter().to(self.processes.device).eval()

    def masks(
        self, videos: Mapping[str, Video], frames: Mapping[str, Sequence[int]], progress: Progress = lambda done: None
    ) -> Iterator[tuple[Place, np.ndarray]]:
        """Class ids of frames at native resolution, `IGNORE` outside the view; one at a time, for they can be large."""
        batch = self.run.config.evaluation.batch
        for name, indices in frames.items():
            found = predict_masks(self.segmenter, videos[name], indices, self.size, batch=batch, **self._options)
            for index, ids in found:
                progress(1)
                yield (name, index), ids

    def watch(self, video: Video, indices: Sequence[int], progress: Progress = lambda done: None) -> Watched:
        """Areas, confidence, entropy and steadiness of frames, at the size the model computes in."""
        classes = self.segmenter.classes
        inside = video.view.crop(video.view.mask(*video.size)).astype(np.uint8)
        inside = cv2.resize(inside, self.size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(bool)
        seen = torch.from_numpy(inside).to(self.processes.device)
        areas, confidence, entropy, consistency = [], [], [], []
        last: tuple[int, np.ndarray] | None = None
        for part, images in read_scenes(video, indices, self.size, self.run.config.evaluation.batch):
            pixels = torch.from_numpy(images).to(self.processes.device).permute(0, 3, 1, 2).float() / 255
            found = probabilities(self.segmenter, pixels, **self._options)
            sure, ids = found.max(1)
            unsure = torch.special.entr(found).sum(1) / math.log(max(2, classes))
            areas.append(F.one_hot(ids[:, seen], classes).float().mean(1).cpu().numpy())
            confidence.append(sure[:, seen].mean(1).cpu().numpy())
            entropy.append(unsure[:, seen].mean(1).cpu().numpy())
            for index, one in zip(part, ids.byte().cpu().numpy(), strict=True):
                current = np.where(inside, one, np.uint8(IGNORE))
                neighbours = last is not None and last[0] == index - 1
                consistency.append(agreement(current, last[1], classes) if last and neighbours else math.nan)
                last = index, current
            progress(len(part))
        return Watched(
            list(indices),
            np.concatenate(areas),
            np.concatenate(confidence),
            np.concatenate(entropy),
            np.array(consistency),
        )

    @property
    def _options(self) -> dict[str, Any]:
        evaluation = self.run.config.evaluation
        on_gpu = self.processes.device.type == "cuda"
        return {
            "flip": evaluation.flip,
            "scales": evaluation.scales,
            "autocast": self.processes.autocast(self.run.config.compute) if on_gpu else None,
        }
