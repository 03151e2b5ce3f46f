"""A round of the loop: from a run to the next frames with drafts, and their labels back into the dataset."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from suture.annotate.import_labels import import_labels
from suture.annotate.open_run import open_run
from suture.annotate.select import select
from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.config import load_config
from suture.training.train import train

SETTINGS = (
    "data.size=32",
    "method=supervised",
    "method.train.steps=2",
    "method.train.batch=2",
    "compute.accelerator=cpu",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after two steps, on videos of which every third training frame has a mask."""
    root = tmp_path_factory.mktemp("loop")
    settings = SyntheticSettings(cases=4, frames=9, shots=2, width=64, height=48)
    write_synthetic(root / "data", settings, progress=False)
    for video in load_dataset(root / "data").split("train"):
        for index in video.with_mask:
            if index % 3:
                Path(video.masks[index].name).unlink()
    train(load_config(root / "data", "demo", SETTINGS), root / "run", Console(file=io.StringIO()))
    return root / "run"


def test_a_run_gives_unlabelled_training_frames_with_drafts_that_can_be_imported(run: Path, tmp_path: Path) -> None:
    dataset, predictor = open_run(run)
    labelled = {(video.id, index) for video in dataset for index in video.with_mask}
    out = tmp_path / "out"
    chosen = select(dataset, out, budget=4, by="model", tool="labelstudio", predictor=predictor, progress=False)
    assert chosen.count == 4
    assert not labelled & set(chosen)
    assert {dataset[video].split for video, _ in chosen} == {"train"}
    tasks = json.loads((out / "tasks.json").read_text())
    assert all(0 < task["predictions"][0]["score"] < 1 for task in tasks)
    for task in tasks:
        task["annotations"] = task.pop("predictions")
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    import_labels(run.parent / "data", [tmp_path / "export.json"])
    after = load_dataset(run.parent / "data")
    name, index = next(iter(chosen))
    drawn = predictor.predict(after[name].read(index), after[name].view)[0].mask
    assert (after.read_mask(after[name], index) == drawn).all()


def test_a_test_video_cannot_be_selected(run: Path, tmp_path: Path) -> None:
    dataset, predictor = open_run(run)
    test = load_dataset(run.parent / "data").split("test")[0]
    (tmp_path / "list.txt").write_text(f"{test.id} 3\n")
    with pytest.raises(UserError, match="fits 0 videos"):
        select(dataset, tmp_path / "out", listed=tmp_path / "list.txt", predictor=predictor, progress=False)
