"""Pseudo labels: what the segmenter says of every unlabelled training frame, and how sure it is."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.lib.format import open_memmap
from pydantic import Field

from suture.data.classes import IGNORE
from suture.data.scene import resized
from suture.data.training import TrainingFrames
from suture.files import replacing
from suture.methods.stage import Job, Settings
from suture.models.inference import probabilities
from suture.models.segmenter import Segmenter

Progress = Callable[[int, int], None]
"""Called with frames done and frames in all."""


class PseudoSettings(Settings):
    """How pseudo labels are made."""

    batch: int = Field(16, ge=1)
    flip: bool = False
    """Average the prediction of the frame and of its mirror image."""
    scales: tuple[float, ...] = (1.0,)


class PseudoLabels:
    """A stage without training: one pass over the unlabelled frames.

    One file of labels and one of confidence per video, memory-mapped, at training size; a finished video's files are
    there or not, so a killed pass goes on with the next video. Several processes share the videos.
    """

    def __init__(self, name: str, settings: PseudoSettings) -> None:
        self.name = name
        self.settings = settings

    def run(self, job: Job, progress: Progress = lambda done, total: None) -> None:
        """Label the frames of this process's videos."""
        segmenter = job.segmenter.to(job.device).eval()
        todo = {video: n for video, n in _by_video(job.frames).items() if not _files(job.folder, video)[1].exists()}
        total, done = sum(map(len, todo.values())), 0
        for place, (video, numbers) in enumerate(todo.items()):
            if place % job.world == job.rank:
                self._label(job, segmenter, video, numbers)
            done += len(numbers)
            progress(done, total)

    def _label(self, job: Job, segmenter: Segmenter, video: str, numbers: list[int]) -> None:
        shape = (len(numbers), *job.size)
        inside = cv2.resize(job.frames.pixels.inside(video).astype(np.uint8), job.size[::-1]) > 0
        labels_file, confidence_file = _files(job.folder, video)
        with replacing(labels_file) as a, replacing(confidence_file) as b:
            labels, confidence = (open_memmap(path, "w+", np.uint8, shape) for path in (a, b))
            for start in range(0, len(numbers), self.settings.batch):
                part = numbers[start : start + self.settings.batch]
                images = np.stack([resized(job.frames.image(number), job.size) for number in part])
                batch = torch.from_numpy(images).to(job.device).permute(0, 3, 1, 2).float() / 255
                found = probabilities(
                    segmenter, batch, flip=self.settings.flip, scales=self.settings.scales, autocast=job.autocast
                )
                sure, ids = found.max(1)
                labels[start : start + len(part)] = np.where(inside, ids.cpu().numpy(), IGNORE)
                confidence[start : start + len(part)] = (sure * 255).round().cpu().numpy() * inside
            labels.flush()
            confidence.flush()

    def load(self, job: Job) -> None:
        """Give the labels to the training frames."""
        frames = job.frames
        frames.pseudo = dict(_entries(job.folder, frames, 0))
        frames.confidence = dict(_entries(job.folder, frames, 1))


def _by_video(frames: TrainingFrames) -> Mapping[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number in frames.unlabelled.tolist():
        numbers.setdefault(frames.places[number][0].id, []).append(number)
    return numbers


def _files(folder: Path, video: str) -> tuple[Path, Path]:
    name = video.replace("/", "__")
    return folder / "pseudo" / f"{name}.labels.npy", folder / "pseudo" / f"{name}.confidence.npy"


def _entries(folder: Path, frames: TrainingFrames, which: int) -> Iterator[tuple[int, np.ndarray]]:
    for video, numbers in _by_video(frames).items():
        array = np.load(_files(folder, video)[which], mmap_mode="r")
        yield from zip(numbers, array, strict=True)
