"""A tiny training set in memory, the context of a run on it, and a trainer: what the tests of all methods share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.labelling import Labelling
from suture.data.sampling.frames import TrainingFrames
from suture.methods.stage import Stage, StageContext
from suture.models.segmenter import build_segmenter
from suture.training.loop import Callback, TrainingLoop

CLASSES = ClassTable(("tissue", "tool", "vessel"), ((180, 90, 80), (90, 90, 110), (120, 20, 30)), {0: 0, 1: 1, 2: 2})
Place = tuple[str, int]
"""Video and index."""


class MemoryPixels:
    """Pixels from memory instead of a frame store: what is not in it must not be asked for."""

    def __init__(
        self, frames: Mapping[Place, np.ndarray], labels: Mapping[Place, np.ndarray], inside: Mapping[str, np.ndarray]
    ) -> None:
        self._frames, self._labels, self._inside = frames, labels, inside

    def frame(self, video: str, index: int) -> np.ndarray:
        return self._frames[video, index]

    def labels(self, video: str, index: int) -> np.ndarray:
        return self._labels[video, index]

    def inside(self, video: str) -> np.ndarray:
        return self._inside[video]


def painted(seed: Sequence[int], shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A frame and its labels: tissue, a tool in one half and a vessel in the other, each in a colour of its own."""
    generator = np.random.default_rng(seed)
    height, width = shape
    rows, columns = np.ogrid[:height, :width]
    x, y = generator.uniform(0.3, 0.7, 2) * (width, height)
    labels = np.zeros(shape, np.uint8)
    labels[(abs(columns - x) < 0.2 * width) & (rows < 0.55 * height)] = 1
    labels[(abs(rows - y - 0.2 * height) < 0.15 * height) & (columns > 0.1 * width) & (labels == 0)] = 2
    colors = np.array(CLASSES.colors) + generator.integers(-10, 10, (3, 3))
    noise = generator.integers(-8, 8, (*shape, 3))
    return np.clip(colors[labels] + noise, 0, 255).astype(np.uint8), labels


def circle(shape: tuple[int, int]) -> np.ndarray:
    """The largest circle in a frame."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    radius = min(shape) / 2
    return (rows + 0.5 - shape[0] / 2) ** 2 + (columns + 0.5 - shape[1] / 2) ** 2 <= radius**2


@pytest.fixture
def tiny_context(tmp_path: Path) -> Callable[..., StageContext]:
    """Builds a context on painted frames in memory.

    `videos` says how many frames each video has; a video's case is its name up to a dot, so `a.1` and `a.2` are two
    videos of one case. Each video has two shots; every `every`-th frame is labelled. With `numbered`, a frame is all of
    one grey, 10 × its number, so that a rendered view tells which frame it is of. With `blind`, no pixel is in view.
    """

    def build(
        videos: Mapping[str, int] | None = None,
        *,
        every: int = 3,
        excluded: Mapping[str, Sequence[int]] | None = None,
        size: tuple[int, int] = (32, 32),
        stored: tuple[int, int] = (36, 44),
        round_view: bool = False,
        blind: bool = False,
        numbered: bool = False,
        architecture: str = "deeplabv3",
        **options: Any,
    ) -> StageContext:
        videos = videos or {"a": 6, "b": 6}
        excluded = excluded or {}
        made = [
            Video(
                name,
                name.split(".")[0],
                [Frame(index, index) for index in range(length)],
                "train",
                excluded=frozenset(excluded.get(name, ())),
            )
            for name, length in videos.items()
        ]
        dataset = Dataset("tiny", tmp_path, CLASSES, made)
        labelling = Labelling({name: range(0, length, every) for name, length in videos.items()})
        inside = circle(stored) if round_view else np.full(stored, not blind)
        frames: dict[Place, np.ndarray] = {}
        labels: dict[Place, np.ndarray] = {}
        for number, place in enumerate((video.id, index) for video in made for index in video.usable):
            frames[place], truth = painted([number], stored)
            if numbered:
                frames[place] = np.full((*stored, 3), 10 * number, np.uint8)
            if place in set(labelling):
                labels[place] = np.where(inside, truth, IGNORE).astype(np.uint8)
        pixels = MemoryPixels(frames, labels, {video.id: inside for video in made})
        training = TrainingFrames(dataset, labelling, pixels)
        torch.manual_seed(0)
        segmenter = build_segmenter(architecture, "tu-test_resnet", classes=len(CLASSES))
        shots = [
            2 * made.index(video) + (video.usable.index(index) >= len(video.usable) // 2)
            for video, index in training.places
        ]
        return StageContext(
            **{
                "frames": training,
                "segmenter": segmenter,
                "size": size,
                "seed": 0,
                "shots": shots,
                "folder": tmp_path,
                **options,
            }
        )

    return build


@pytest.fixture
def fit() -> Callable[..., None]:
    """Trains a stage to its end, as a run does, but without its files and bars."""

    def run(stage: Stage, context: StageContext, *callbacks: Callback) -> None:
        stage.begin(context)
        TrainingLoop(stage, callbacks).run()

    return run
