"""Unlabelled videos beside the dataset, and finished runs that are trained further on them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from suture.core.errors import UserError
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.adapt import adapt_config, adapted_folder
from suture.training.config import Config
from suture.training.run_folder import Run
from suture.training.run_stages import starting_segmenter
from suture.training.train import open_data, start_processes, train

QUIET = Console(quiet=True)
SHORT = ["method.train.steps=2", "method.train.batch=4"]


@pytest.fixture(scope="module")
def new_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of frames of another size."""
    settings = SyntheticSettings(cases=3, frames=12, width=48, height=64, seed=7)
    root = write_synthetic(tmp_path_factory.mktemp("new") / "data", settings, container="png", progress=False)
    first = next(path for path in sorted((root / "videos").iterdir()) if path.is_dir())
    return first.rename(root.parent / "patient")


def test_adapting_goes_on_from_the_final_model(finished: Path, new_video: Path, tmp_path: Path) -> None:
    run = Run(finished)
    assert adapted_folder(run).name == "run-adapted"
    config = adapt_config(run, [new_video], SHORT)
    assert config.method["name"] == "stitch"
    opened = open_data(config)
    before = open_data(run.config)
    assert opened.labelling == before.labelling
    (added,) = [video for video in opened.dataset if video.id not in {one.id for one in before.dataset}]
    assert (added.id, added.split) == ("patient", "train")
    start = starting_segmenter(config, len(opened.dataset.classes), start_processes(config)).state_dict()
    assert all(map(torch.equal, start.values(), run.segmenter().state_dict().values()))

    with (tmp_path / "log").open("w") as log:
        train(config, tmp_path / "adapted", Console(file=log, width=200))
    assert added.id in (tmp_path / "log").read_text()
    adapted = Run(tmp_path / "adapted")
    assert adapted.data["weights"]["name"] == "run"
    assert adapted.is_finished
    assert not all(map(torch.equal, start.values(), adapted.segmenter().state_dict().values()))


def test_a_model_of_other_classes_is_no_start(finished: Path, small: Callable[..., Config], tmp_path: Path) -> None:
    folder = write_synthetic(
        tmp_path / "data", SyntheticSettings(cases=3, frames=12, width=64, height=64), container="png", progress=False
    )
    path = folder / "dataset.yaml"
    name = open_data(small()).dataset.classes.names[-1]
    path.write_text(path.read_text().replace(name, "other"))
    with pytest.raises(UserError, match="other classes"):
        train(small(f"data.root={folder}", f"model.start={finished}", *SHORT), tmp_path / "run", QUIET)


def test_test_videos_seen_unlabelled_are_a_set_of_their_own(small: Callable[..., Config], tmp_path: Path) -> None:
    config = small(*SHORT, "data.seen=[test]", "evaluation.splits=[val, test]")
    metrics = train(config, tmp_path / "run", QUIET)
    assert list(metrics) == ["val", "seen"]
    videos = set(metrics["seen"]["videos"])
    assert videos == {video.id for video in open_data(small()).dataset.split("test")}
    record = json.loads((tmp_path / "run" / "data.json").read_text())
    assert set(record["seen"]) == videos
    assert not videos & {place.rpartition("/")[0] for place in record["labelled"]}
