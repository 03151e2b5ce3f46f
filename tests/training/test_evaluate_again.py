"""A run that is scored again: what it has learnt from is never scored as new, whatever dataset.yaml says by then."""

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from rich.console import Console

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.fingerprint import Fingerprints
from suture.deployment.model_card import render_card
from suture.reports.reported_run import read_runs
from suture.reports.summary_section import cautions
from suture.training import run_folder as folder
from suture.training.config import Config
from suture.training.data_record import match_record
from suture.training.run_folder import Run
from suture.training.train import evaluate_run

SCORED = ("evaluation.splits=[val, test]", "evaluation.completion=true")


def say(data: Path, **keys: Any) -> None:
    """Change keys of dataset.yaml; None removes one."""
    file = data / "dataset.yaml"
    said = yaml.safe_load(file.read_text()) | keys
    file.write_text(yaml.safe_dump({key: value for key, value in said.items() if value is not None}))


def evaluated(run: Path) -> tuple[dict[str, Any], str]:
    text = io.StringIO()
    return evaluate_run(run, console=Console(file=text, width=200)), text.getvalue()


@pytest.fixture
def trained(scored: Callable[[Path], Path], tmp_path: Path) -> tuple[Path, Path]:
    """A scored run, and its copy of the dataset."""
    return scored(tmp_path), tmp_path / "data"


def test_a_case_that_was_learnt_from_is_never_scored_as_new(trained: tuple[Path, Path]) -> None:
    run, data = trained
    before, card = (run / "metrics.json").read_text(), render_card(Run(run))
    _, said = evaluated(run)
    assert "scored as it was then" not in said
    say(data, split={"train": ["case01", "case04"], "val": ["case03"], "test": ["case02"]})
    _, said = evaluated(run)
    assert "and is scored as it was then: case02 in train and case04 in test." in said
    assert (run / "metrics.json").read_text() == before
    assert render_card(Run(run)) == card
    assert read_json(run / "metrics.json")["test"]["cases"].keys() == {"case04"}


def test_a_mask_of_another_size_is_told_before_anything_is_scored(trained: tuple[Path, Path]) -> None:
    run, data = trained
    before = (run / "metrics.json").read_text()
    cv2.imwrite(str(data / "masks/case04__frame_000011.png"), np.zeros((32, 32), np.uint8))
    text = io.StringIO()
    with pytest.raises(UserError, match=r"frame_000011\.png is 32×32 on a frame of 64"):
        evaluate_run(run, console=Console(file=text, width=200))
    assert "evaluate" not in text.getvalue()
    assert (run / "metrics.json").read_text() == before


def test_scores_of_fewer_frames_do_not_replace_others(trained: tuple[Path, Path]) -> None:
    run, data = trained
    before = (run / "metrics.json").read_text()
    video = Path(min(read_json(run / "metrics.json")["test"]["videos"])).name
    masks = [path for path in data.rglob("*.png") if "masks" in path.parts]
    next(path for path in masks if video in str(path.relative_to(data))).unlink()
    with pytest.raises(UserError, match=r"holds scores of 1 frame of test that cannot be scored now"):
        evaluated(run)
    assert (run / "metrics.json").read_text() == before


def test_validation_stays_where_the_run_had_it(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """What data.validation names need not be a training case any more."""
    data, run = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "run"
    train_quietly(supervised(f"data.root={data}", *SCORED, "data.validation=[case02]"), run)
    before = (run / "metrics.json").read_text()
    say(data, split={"train": ["case01"], "test": ["case02", "case03", "case04"]})
    _, said = evaluated(run)
    assert "case02 in val and case03 in val." in said
    assert (run / "metrics.json").read_text() == before


def test_the_labelling_loop(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """Labels of one case, all are for training; with those of a second one, the draft puts the first into the test."""
    data, run = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "run"
    for mask in (data / "masks").iterdir():
        if not re.match(r"case02__frame_0000(00|04|08)", mask.name):
            mask.unlink()
    split = yaml.safe_load((data / "dataset.yaml").read_text())["split"]
    say(data, split=None)
    config = supervised(f"data.root={data}", "data.labelling.every=null", *SCORED)
    assert train_quietly(config, run) == {}
    shutil.copytree(dataset / "masks", data / "masks", dirs_exist_ok=True)
    say(data, split=split | {"train": ["case01"], "test": ["case02", "case04"]})
    metrics, said = evaluated(run)
    assert "case02 in train" in said
    # All were learnt from, if without labels: what is left are the new labels in the videos that had some.
    assert {which: (list(one["videos"]), one["overall"]["frames"]) for which, one in metrics.items()} == {
        "completion": (["case02"], 9)
    }


def test_new_cases_are_scored(trained: tuple[Path, Path]) -> None:
    """And a new video of a case that was learnt from is none."""
    run, data = trained
    for old, new in (("case04", "case05"), ("case02", "case02b")):
        shutil.copytree(data / "videos" / old, data / "videos" / new)
        for mask in (data / "masks").glob(f"{old}__*"):
            shutil.copy(mask, mask.with_name(mask.name.replace(old, new)))
    cases = {"case01": ["case01a", "case01b"], "case02": ["case02", "case02b"]}
    say(data, cases=cases, split={"train": ["case01"], "val": ["case03"], "test": ["case02", "case04", "case05"]})
    metrics, _ = evaluated(run)
    assert metrics["test"]["videos"].keys() == {"case04", "case05"}
    assert metrics["completion"]["videos"].keys() == {"case01a", "case01b", "case02"}
    assert "Of the videos scored as new, case05 came into the splits after the training." in render_card(Run(run))
    said = cautions(read_runs([run]))
    assert "run is also scored on case05: added to the splits after its training." in said


def test_scores_of_a_case_that_was_learnt_from_are_named_as_such(trained: tuple[Path, Path]) -> None:
    """Earlier versions wrote them."""
    run, _ = trained
    file = run / "metrics.json"
    file.write_text(file.read_text().replace("case04", "case02"))
    assert "- Tested on cases that it has learnt from (case02): the scores do not show" in render_card(Run(run))
    assert any(
        "trained and tested on videos of case02, so the scores do not show" in one for one in cautions(read_runs([run]))
    )


def rename(data: Path, old: str, new: str) -> None:
    """Give a video, its masks and its view another name; it is a case of its own then."""
    (data / "videos" / old).rename(data / "videos" / new)
    for mask in (data / "masks").glob(f"{old}__*"):
        mask.rename(mask.with_name(mask.name.replace(old, new)))
    said = yaml.safe_load((data / "dataset.yaml").read_text())
    said["view"][new] = said["view"].pop(old)
    say(data, view=said["view"], cases={"case01": ["case01a", "case01b"]})


@pytest.mark.parametrize("new", ["op17", "case04"])
def test_a_video_with_another_name_is_refused(new: str, trained: tuple[Path, Path]) -> None:
    """Also with the name of another video of the run: what it learnt from would be scored as new."""
    run, data = trained
    before = (run / "metrics.json").read_text()
    if new == "case04":
        shutil.rmtree(data / "videos/case04")
    rename(data, "case02", new)
    say(data, split={"train": ["case01"], "val": ["case03"], "test": [new]})
    with pytest.raises(UserError, match=f"data: the video {new} was case02 in the run's training"):
        evaluated(run)
    assert (run / "metrics.json").read_text() == before


def test_a_video_that_was_joined_to_a_case_that_was_learnt_from_is_named(trained: tuple[Path, Path]) -> None:
    run, data = trained
    say(
        data,
        cases={"case01": ["case01a", "case01b"], "case02": ["case02", "case04"]},
        split={"train": ["case01", "case02"], "val": ["case03"], "test": []},
    )
    (run / "metrics.json").unlink()  # its scores of case04 would be lost
    metrics, _ = evaluated(run)
    assert "test" not in metrics


def test_the_data_record_is_read_once(trained: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    once = folder.read_record
    monkeypatch.setattr(folder, "read_record", lambda path, shape: read.append(path.name) or once(path, shape))
    evaluated(trained[0])
    assert read.count("data.json") == 1


def splits(dataset: Dataset) -> dict[str, str | None]:
    return {video.id: video.split for video in dataset}


def test_a_case_goes_where_the_run_had_any_of_its_videos(trained: tuple[Path, Path]) -> None:
    run, data = trained
    record = read_json(run / "data.json")
    say(
        data,
        cases={"joined": ["case02", "case04"], "case03": ["case03"]},
        split={"test": ["joined", "case01a", "case01b"]},
    )
    now = splits(match_record(record, load_dataset(data), Fingerprints()))
    assert now == {"case01a": "train", "case01b": "train", "case02": "train", "case03": "val", "case04": "train"}
    # A video that is gone was of its case still; one that was in no split was never met.
    record["videos"] = {
        "gone": record["videos"]["case02"] | {"case": "case01b", "sha256": "of a video that is gone"},
        "case04": record["videos"]["case04"] | {"split": None},
    }
    say(data, cases=None, split={"train": ["case02"], "test": ["case01b", "case04"]})
    now = splits(match_record(record, load_dataset(data), Fingerprints()))
    assert now == {"case01a": None, "case01b": "train", "case02": "train", "case03": None, "case04": "test"}


def test_a_protocol_that_divides_cases_goes_by_video(trained: tuple[Path, Path]) -> None:
    run, data = trained
    dataset = load_dataset(data)
    dataset.divides_cases = True
    record = read_json(run / "data.json")
    record["videos"]["case01b"]["split"] = "test"
    now = splits(match_record(record, dataset, Fingerprints()))
    assert (now["case01a"], now["case01b"]) == ("train", "test")
