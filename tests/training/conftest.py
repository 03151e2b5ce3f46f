"""A dataset, a config and a run that are as small as they can be."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.store import Fit, FrameStore
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.config import Config, load_config
from suture.training.train import train

SMALL = (
    "data.size=32",
    "data.labelling.every=4",
    "model.architecture=pspnet",  # half of DeepLab's work
    "model.encoder=tu-test_resnet",
    "model.weights=null",
    "compute.accelerator=cpu",
    "compute.log_every=1",
    "evaluation.splits=[]",
    "evaluation.completion=false",
)
SUPERVISED = ("method=supervised", "method.train.batch=4", "method.train.steps=4")
PGVCL = (
    "method=pgvcl",
    "method.pretrain.steps=2",
    "method.pretrain.batch=4",
    "method.contrast.steps=3",
    "method.contrast.hidden=16",
    "method.contrast.channels=8",
    "method.finetune.steps=2",
    "method.finetune.batch=4",
)

QUIET = Console(quiet=True)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training cases (three videos, one with a round view), one for validation, one for the test."""
    folder = tmp_path_factory.mktemp("data") / "operations"
    settings = SyntheticSettings(cases=4, frames=12, width=64, height=64)
    return write_synthetic(folder, settings, container="png", progress=False)


@pytest.fixture(scope="session")
def small(dataset: Path) -> Callable[..., Config]:
    """A config that is small in all but its method."""
    return lambda *settings: load_config(dataset, overrides=[*SMALL, *settings])


@pytest.fixture(scope="session")
def supervised(small: Callable[..., Config]) -> Callable[..., Config]:
    """A config of the supervised method with further settings."""
    return lambda *settings: small(*SUPERVISED, *settings)


@pytest.fixture(scope="session")
def pgvcl(small: Callable[..., Config]) -> Callable[..., Config]:
    """A config of all four stages with further settings."""
    return lambda *settings: small(*PGVCL, *settings)


@pytest.fixture(scope="session")
def finished(pgvcl: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of all four stages that went through and was evaluated; not to be written to."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(pgvcl("evaluation.splits=[val, test]", "evaluation.completion=true"), folder, QUIET)
    return folder


@pytest.fixture(scope="session")
def scored(
    dataset: Path, supervised: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Path]:
    """Copy a scored supervised run and its dataset into a folder, as `run` and `data`; return the run."""
    folder = tmp_path_factory.mktemp("scored")
    shutil.copytree(dataset, folder / "data")
    settings = ("evaluation.splits=[val, test]", "evaluation.completion=true")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # a relative path is right in a copy too
        train(supervised("data.root=data", *settings), Path("run"), QUIET)
    return lambda to: shutil.copytree(folder, to, dirs_exist_ok=True) / "run"


@pytest.fixture
def without_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings decode their frames and masks each time, in place of the frame store."""
    opened = FrameStore.open

    def open_store(dataset: Dataset, frames: Any, labelled: Any, size: int, *rest: Any, **options: Any) -> FrameStore:
        def frame(video: str, index: int) -> np.ndarray:
            return Fit.of(dataset[video], size).frame(dataset[video].read(index), index)

        def labels(video: str, index: int) -> np.ndarray:
            return Fit.of(dataset[video], size).labels(dataset.read_mask(dataset[video], index), index)

        store = opened(dataset, frames, labelled, size, *rest, **options)
        monkeypatch.setattr(store, "frame", frame)
        monkeypatch.setattr(store, "labels", labels)
        return store

    monkeypatch.setattr(FrameStore, "open", open_store)


@pytest.fixture
def train_quietly() -> Callable[[Config, Path], dict[str, Any]]:
    """Train without a word."""
    return lambda config, folder: train(config, folder, QUIET)
