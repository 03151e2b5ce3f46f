"""Labels carried along a video without training: copied, or along features; scored in completion alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.labelling import Labelling
from suture.data.sampling.frames import TrainingFrames
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.methods.propagate import CarriedLabels, CarrySettings
from suture.methods.stage import StageContext
from suture.models.segmenter import build_segmenter
from suture.training.config import load_config
from suture.training.train import evaluate_run, train

SIDE = 96
SHIFT = 6
"""Pixels that everything moves to the right from frame to frame."""


TABLE = ClassTable(("tissue", "tool"), ((0, 0, 0), (9, 9, 9)), {0: 0, 1: 1})


class Moving:
    """A noisy frame with a brighter tool, moved from frame to frame."""

    def __init__(self) -> None:
        self.truth = np.zeros((SIDE, SIDE), np.uint8)
        self.truth[20:70, 30:60] = 1
        noise = np.random.default_rng(0).integers(0, 40, (SIDE, SIDE, 3))
        self.image = (60 + noise + 90 * self.truth[..., None]).astype(np.uint8)

    def frame(self, video: str, index: int) -> np.ndarray:
        return np.roll(self.image, SHIFT * index, 1)

    def labels(self, video: str, index: int) -> np.ndarray:
        return np.roll(self.truth, SHIFT * index, 1)

    def inside(self, video: str) -> np.ndarray:
        return np.ones((SIDE, SIDE), bool)


@pytest.fixture
def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageContext:
    """A video of 9 frames in which frames 0 and 8 are labelled, and one without labels."""
    monkeypatch.setattr(Video, "size", (SIDE, SIDE))
    videos = [Video(name, name, [Frame(index, index) for index in range(9)], "train") for name in "ab"]
    training = TrainingFrames(Dataset("moving", tmp_path, TABLE, videos), Labelling({"a": [0, 8]}), Moving())
    segmenter = build_segmenter("unet", "tu-test_resnet", classes=len(TABLE))
    return StageContext(training, segmenter, (SIDE, SIDE), seed=0, folder=tmp_path)


def carried(context: StageContext, **settings: Any) -> dict[int, np.ndarray]:
    stage = CarriedLabels("carry", CarrySettings(**settings))
    stage.run(context)
    masks = stage.masks(context.folder, context.frames)
    return dict(masks(context.frames.videos[0], range(1, 8)))


def agreement(context: StageContext, masks: dict[int, np.ndarray]) -> list[float]:
    pixels = context.frames.pixels
    return [float((mask == pixels.labels("a", index)).mean()) for index, mask in masks.items()]


def test_the_nearest_mask_is_copied(moving: StageContext) -> None:
    copies = carried(moving, features=False)
    for index, mask in copies.items():
        assert np.array_equal(mask, moving.frames.pixels.labels("a", 0 if index <= 4 else 8))
    stage = CarriedLabels("carry", CarrySettings(features=False))
    ((_, unlabelled), *_) = stage.masks(moving.folder, moving.frames)(moving.frames.videos[1], range(9))
    assert (unlabelled == IGNORE).all(), "no label to carry"


@pytest.mark.parametrize("memory", [0, 7])
def test_labels_follow_what_moves(moving: StageContext, tmp_path: Path, memory: int) -> None:
    copied = agreement(moving, carried(moving, features=False))
    moving.folder = tmp_path / "features"
    followed = agreement(moving, carried(moving, memory=memory))
    assert np.mean(followed) > np.mean(copied) + 0.05
    assert min(followed) > 0.85


def test_completion_alone_is_scored_and_scored_again(tmp_path: Path) -> None:
    videos = SyntheticSettings(cases=3, frames=12, width=64, height=64)
    root = write_synthetic(tmp_path / "data", videos, container="png", progress=False)
    settings = ["method=propagate", "method.carry.features=false", "data.size=64", "data.labelling.every=4"]
    model = ["model.architecture=unet", "model.encoder=tu-test_resnet", "model.weights=null", "compute.accelerator=cpu"]
    metrics = train(load_config(root, overrides=settings + model), tmp_path / "run")
    assert list(metrics) == ["completion"]
    assert metrics["completion"]["overall"]["miou"] > 0.3
    assert evaluate_run(tmp_path / "run") == metrics
