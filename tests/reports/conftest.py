"""Tiny finished runs: two on data with masks everywhere, one on data where only the labelled frames have any."""

import io
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sklearn.manifold import TSNE
from tiny_runs import PLANTED, Runs

from suture.core.io import read_json, write_json
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.reports.report import write_report
from suture.reports.report_context import ReportContext
from suture.reports.reported_run import read_runs
from suture.training.config import load_config
from suture.training.train import train

EVERY = 6
_COMMON = ("data.size=32", f"data.labelling.every={EVERY}", "model.encoder=tu-test_resnet", "compute.log_every=1")
_SUPERVISED = ("method=supervised", "method.train.steps=3", "method.train.batch=2")
_PGVCL = ("method=pgvcl", *(f"method.{stage}={{steps: 2, batch: 2}}" for stage in ("pretrain", "contrast", "finetune")))


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    """Shorten t-SNE and the drawing of figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suture.reports.embeddings_section.MAX_PIXELS", 50)
        patch.setattr("sklearn.manifold.TSNE", partial(TSNE, max_iter=250))
        patch.setattr("suture.reports.paper_figures.DPI", 40)
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder, user, host = PLANTED
    root = tmp_path_factory.mktemp(folder)
    data, unmasked = root / "data", root / "unmasked"
    write_synthetic(data, SyntheticSettings(cases=4, frames=14, shots=2, width=64, height=64), progress=False)
    shutil.copytree(data, unmasked)
    for mask in (unmasked / "masks").iterdir():
        if int(mask.stem[-6:]) % EVERY or mask.name.startswith(("case03", "case04")):
            mask.unlink()
    folders = [root / "runs" / name for name in ("supervised", "pgvcl", "unmasked")]
    for run, of, settings in zip(folders, (data, data, unmasked), (_SUPERVISED, _PGVCL, _PGVCL), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("USER", "LOGNAME", "USERNAME"):
                patch.setenv(name, user)
            patch.setattr("socket.gethostname", lambda: host)
            train(load_config(of, "demo", [*_COMMON, *settings]), run, Console(file=io.StringIO()))
    return Runs(*folders, data)


@pytest.fixture(scope="session")
def footage(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a video of no dataset."""
    folder = tmp_path_factory.mktemp("doe-new")
    shutil.copy(runs.data / "videos" / "case04.mp4", folder / "new.mp4")
    return folder


@pytest.fixture(scope="session")
def both(runs: Runs, footage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything a report can show: two runs and a video without truth, with the figures in `figures` beside it."""
    folder = tmp_path_factory.mktemp("report")
    videos, figures = [footage], folder / "figures"
    return write_report([runs.supervised, runs.pgvcl], folder / "report.html", videos=videos, figures=figures)


@pytest.fixture
def console() -> Console:
    """Console that records what a report prints."""
    return Console(file=io.StringIO(), record=True, width=400)


@pytest.fixture
def context_of(console: Console) -> Callable[..., ReportContext]:
    """Function that opens runs for the sections of a report."""
    return lambda *folders, **options: ReportContext(read_runs(folders), True, console, **options)


@pytest.fixture
def copy_run(tmp_path: Path) -> Callable[..., Path]:
    """Function that copies a run and changes its JSON files."""

    def copy(run: Path, name: str, **changes: Callable[[dict[str, Any]], None]) -> Path:
        folder = shutil.copytree(run, tmp_path / name)
        for file, change in changes.items():
            content = read_json(folder / f"{file}.json")
            change(content)
            write_json(folder / f"{file}.json", content)
        return folder

    return copy
