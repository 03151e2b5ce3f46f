"""A tiny finished run, with its data; a tiny model, with predictors on both kinds of device."""

import io
from pathlib import Path

import pytest
from predict_files import as_on_a_gpu, write_model
from rich.console import Console

from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.prediction.predictor import Predictor
from suture.training.config import load_config
from suture.training.train import train

_SETTINGS = (
    "data.size=32",
    "data.labelling.every=3",
    "method=supervised",
    "method.train.steps=60",
    "method.train.batch=8",
    "method.train.optimizer.lr=3e-3",
    "compute.accelerator=cpu",
)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, not to be written to; the data lie beside it, in a folder whose name must not get out."""
    root = tmp_path_factory.mktemp("patient-doe")
    settings = SyntheticSettings(cases=4, frames=8, shots=2, width=64, height=48)
    write_synthetic(root / "data", settings, progress=False)
    train(load_config(root / "data", "demo", _SETTINGS), root / "tiny", Console(file=io.StringIO()))
    return root / "tiny"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cpu(model: Path) -> Predictor:
    """One for all tests of a file that leave it as it was."""
    return Predictor(model, "cpu")


@pytest.fixture(scope="module")
def gpu(model: Path) -> Predictor:
    """So too, with the processes that write for it."""
    return as_on_a_gpu(model)
