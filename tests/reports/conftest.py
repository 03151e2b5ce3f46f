"""Tiny finished runs: two on data with masks everywhere, one on data where only the labelled frames have any."""

import io
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from sklearn.manifold import TSNE
from tiny_runs import Runs

from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.config import load_config
from suture.training.train import train

EVERY = 6
_COMMON = ("data.size=32", f"data.labelling.every={EVERY}", "model.encoder=tu-test_resnet", "compute.log_every=1")
_SUPERVISED = ("method=supervised", "method.train.steps=3", "method.train.batch=2")
_PGVCL = (
    "method=pgvcl",
    *(
        f"method.{stage}.{setting}"
        for stage in ("pretrain", "contrast", "finetune")
        for setting in ("steps=2", "batch=2")
    ),
)


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    """t-SNE as large and long as a person wants to see takes seconds, and so does printing quality."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suture.reports.embeddings_section._POINTS", 50)
        patch.setattr("sklearn.manifold.TSNE", partial(TSNE, max_iter=250))
        patch.setattr("suture.reports.figures._DPI", 40)
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Finished runs; tests that change one take a copy."""
    root = tmp_path_factory.mktemp("patient-doe")  # a name that must not appear in any report
    data, unmasked = root / "data", root / "unmasked"
    write_synthetic(data, SyntheticSettings(cases=4, frames=14, shots=2, width=64, height=64), progress=False)
    shutil.copytree(data, unmasked)
    for mask in (unmasked / "masks").iterdir():
        if int(mask.stem[-6:]) % EVERY or mask.name.startswith(("case03", "case04")):
            mask.unlink()
    runs = Runs(*(root / "runs" / name for name in ("supervised", "pgvcl", "unmasked")))
    for folder, of, settings in (
        (runs.supervised, data, _SUPERVISED),
        (runs.pgvcl, data, _PGVCL),
        (runs.unmasked, unmasked, _PGVCL),
    ):
        train(load_config(of, "demo", [*_COMMON, *settings]), folder, Console(file=io.StringIO()))
    return runs


@pytest.fixture(scope="session")
def footage(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a video that no dataset knows, named as one that a dataset has."""
    folder = tmp_path_factory.mktemp("doe-new")
    shutil.copy(runs.supervised.parents[1] / "data" / "videos" / "case04.mp4", folder / "case04.mp4")
    return folder


@pytest.fixture
def console() -> Console:
    """What a report prints goes here."""
    return Console(file=io.StringIO(), width=200)
