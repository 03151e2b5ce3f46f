"""A dataset, a config and a run that are as small as they can be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from suture.data.dataset import Dataset
from suture.data.sources.synthetic import write_synthetic
from suture.data.store import DecodedFrames, FrameStore
from suture.data.synthetic.scenario import SyntheticSettings
from suture.runs.config import Config, load_config
from suture.runs.run import train

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


@pytest.fixture
def without_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings decode their frames each time, in place of the frame store."""

    class Decoded(DecodedFrames):
        def beside(self, video: str, kind: str) -> Path:
            return tmp_path / kind / video

    def decoded(dataset: Dataset, _: Any, labelled: Any, size: int, *__: Any, **___: Any) -> Decoded:
        return Decoded(dataset, labelled, size)

    monkeypatch.setattr(FrameStore, "open", decoded)


@pytest.fixture
def train_quietly() -> Callable[[Config, Path], dict[str, Any]]:
    """Train without a word."""
    return lambda config, folder: train(config, folder, QUIET)
