"""The run folder: what lies there, and what may not change when a run goes on."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import pytest
import yaml

from suture.core.errors import UserError
from suture.core.io import read_json, write_json
from suture.data.datasets import load_dataset
from suture.deployment.model_card import render_card
from suture.prediction.open_network import read_training_notes
from suture.training.config import Config, load_config
from suture.training.run_folder import read_curve
from suture.training.train import Run, evaluate_run


def test_the_files_of_a_finished_run(finished: Path) -> None:
    files = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    stages = {"1-pretrain", "3-contrast", "4-finetune"}
    events = {name for name in files if "/tensorboard/" in name}
    assert {Path(name).parts[1] for name in events if "tfevents" in name} == stages
    videos = ("case01a", "case01b", "case02")
    assert files - events == {
        ".lock",
        "config.yaml",
        "data.json",
        "environment.json",
        "metrics.json",
        "model.json",
        "model.safetensors",
        "shots.json",
        "stages/2-pseudo/done.json",
        *(f"stages/{stage}/{name}" for stage in stages for name in ("done.json", "metrics.csv", "weights.safetensors")),
        *(f"pseudo/{video}.{what}.npy" for video in videos for what in ("labels", "confidence")),
    }
    mode = (finished / "config.yaml").stat().st_mode
    assert (finished / "model.safetensors").stat().st_mode == mode, "weights can be read by whom the rest can"


def test_run_reads_every_file_without_torch(finished: Path) -> None:
    code = f"""
import sys
from suture.training.run_folder import Run
run = Run({str(finished)!r})
run.validate()
assert (run.method_name, run.seed, run.dataset_name) == ("pgvcl", 0, "synthetic")
assert run.is_begun and run.is_trained and run.is_scored and run.is_finished
assert [(stage.number, stage.name) for stage in run.stages] == [
    (1, "pretrain"), (2, "pseudo"), (3, "contrast"), (4, "finetune")
]
assert list(run.stage_records) == ["pretrain", "pseudo", "contrast", "finetune"]
assert [row["step"] for row in run.stages[0].curve] == [1, 2] and run.stages[0].weights.exists()
assert run.seconds == sum(record["seconds"] for record in run.stage_records.values()) > 0
assert run.peak_memory is None and run.environment == run.starts[0]
assert run.labelled_frames["case02"] == [0, 4, 8] and run.labelled_share == 9 / run.training_frames
assert run.metrics["test"]["primary"] and run.config_record["data"]["size"] == 32
assert len(run.classes) == run.model_record["segmenter"]["classes"] == 10
assert run.shots.keys() == run.videos("train").keys() and run.effort["batch"] == "4"
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_run_reads_a_file_again_only_after_it_was_replaced(finished: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(finished, tmp_path / "run"))
    first = run.data
    assert run.data is first
    write_json(run.folder / "data.json", first | {"dataset": "other"})
    assert run.dataset_name == "other"


@pytest.mark.parametrize("name", ["config.yaml", "data.json", "environment.json", "metrics.json"])
def test_validate_names_a_missing_file(name: str, finished: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(finished, tmp_path / "run"))
    (run.folder / name).unlink()
    with pytest.raises(UserError, match=name):
        run.validate()
    assert not run.is_finished or name != "metrics.json"


def test_data_json_says_what_was_trained_on_without_paths(finished: Path, dataset: Path) -> None:
    text = (finished / "data.json").read_text()
    data = json.loads(text)
    assert str(dataset) not in text
    assert str(dataset.parent) not in text
    assert data["videos"]["case02"]["case"] == "case02"
    assert data["videos"]["case02"]["split"] == "train"
    assert data["videos"]["case02"]["view"]["circle"]
    assert data["videos"]["case03"]["excluded"] == [6, 7]
    assert all(len(video["sha256"]) == 64 and video["frames"] == 12 for video in data["videos"].values())
    assert sorted(data["labelled"]) == sorted(f"{v}/{i}" for v in ("case01a", "case01b", "case02") for i in (0, 4, 8))
    assert len(data["classes"]) == 10
    assert data["weights"] is None


def test_environment_and_model_say_what_is_needed(finished: Path) -> None:
    (start,) = json.loads((finished / "environment.json").read_text())["starts"]
    assert start.keys() >= {"suture", "commit", "python", "packages", "device", "precision", "threads"}
    assert start["runs_at_a_time"] is None  # nobody told it
    assert start["packages"]["torch"]
    assert start["commit"] is None or re.match(r"[0-9a-f]{7}", start["commit"])
    model = json.loads((finished / "model.json").read_text())
    assert model["format"] == 1
    assert model["size"] == [32, 32]
    assert model["segmenter"].keys() >= {"architecture", "encoder", "classes", "mean", "std"}
    assert [one["name"] for one in model["classes"]][:2] == ["background-tissue", "liver"]
    assert Run(finished).segmenter().classes == 10
    notes = {"view": "auto", "videos_by": "folder", "mirror": [], "deinterlace": False}
    assert read_training_notes(finished / "model.safetensors") == notes


def test_a_model_knows_how_videos_were_told_apart(finished: Path, dataset: Path, tmp_path: Path) -> None:
    by_name = replace(load_dataset(dataset), videos_by="name")
    Run(tmp_path).write_model(Run(finished).segmenter(), by_name, (32, 32))
    assert read_training_notes(tmp_path / "model.safetensors")["videos_by"] == "name"


def test_the_resolved_config_repeats_the_run(finished: Path) -> None:
    config = load_config(finished / "config.yaml")
    assert config == Run(finished).config
    assert config.build_method().settings.contrast.steps == 3


def test_the_curve_has_one_row_per_step(finished: Path) -> None:
    rows = read_curve(finished / "stages/3-contrast/metrics.csv")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["images_per_second"] > 0 for row in rows)
    assert not any("taught" in row for row in rows), "its keys have labels"


def test_a_half_written_last_row_of_a_curve_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,lr,images_per_second,taught\n10,2.5,0.1,8.0,\n20,2.")
    assert read_curve(tmp_path / "metrics.csv") == [{"step": 10, "loss": 2.5, "lr": 0.1, "images_per_second": 8.0}]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"step,loss\n1,\xff\n", "can't decode byte 0xff"), (b"step,loss\n1,2\n", "is damaged")],
)
def test_a_damaged_curve_is_one_message(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_curve(tmp_path / "metrics.csv")


@pytest.fixture
def begun(
    scored: Callable[[Path], Path], supervised: Callable[..., Config], tmp_path: Path
) -> tuple[Path, Callable[..., Config]]:
    """The folder of a trained run on a copy of the dataset, `../data` from there, and its config with further settings.

    It was killed before it was scored, so that it goes on.
    """
    run = scored(tmp_path)
    (run / "metrics.json").unlink()
    return run, lambda *settings: supervised(f"data.root={tmp_path}/data", *settings)


def test_a_changed_config_is_refused_and_the_difference_shown(begun: Any, train_quietly: Callable[..., Any]) -> None:
    folder, config = begun
    with pytest.raises(UserError) as caught:
        train_quietly(config("seed=3", "method.train.optimizer.lr=0.5"), folder)
    assert str(caught.value) == (
        f"{folder} was started with another config (seed: 0 → 3; method.train.optimizer.lr: null → 0.5): "
        f"to resume it unchanged, run suture train {folder}/config.yaml -o {folder}; "
        "for the changed settings, give another folder with -o."
    )


def test_no_run_goes_among_the_masks(
    supervised: Callable[..., Config], dataset: Path, train_quietly: Callable[..., Any]
) -> None:
    with pytest.raises(UserError, match=r"lies in .*masks, where .*dataset\.yaml has its masks"):
        train_quietly(supervised(), dataset / "masks/run")
    assert not (dataset / "masks/run").exists()


@pytest.mark.parametrize("name", ["config.yaml", "notes/today.txt"])
def test_no_run_goes_among_other_files(
    name: str, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """The user's own config.yaml would be written over."""
    own = tmp_path / "mine" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with pytest.raises(UserError, match=r"mine holds files but no run, expected a new or empty folder, or a run"):
        train_quietly(supervised(), tmp_path / "mine")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own]
    assert own.read_text() == "mine"


@pytest.mark.parametrize("name", ["data.json", "environment.json", "shots.json"])
def test_a_record_that_was_changed_is_one_sentence(name: str, begun: Any, train_quietly: Callable[..., Any]) -> None:
    folder, config = begun
    (folder / name).write_text('{"case01a": "cut"}')
    with pytest.raises(UserError, match=rf"{name} is not as Suture wrote it \(.*: put back a whole copy"):
        train_quietly(config(), folder)


def test_a_forgotten_preset_is_told_before_weights_are_fetched(begun: Any, train_quietly: Callable[..., Any]) -> None:
    folder, config = begun
    with pytest.raises(UserError, match=r"was started with another config \(model\.encoder: .*model\.weights: "):
        train_quietly(config("model.encoder=resnet50", "model.weights=imagenet"), folder)


@pytest.mark.parametrize("out", ["own", ".", "own/new/run", "new"])
def test_a_refused_training_removes_only_folders_that_it_made(
    out: str,
    small: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own" if out == "." else tmp_path)
    with pytest.raises(UserError, match="all 36 training frames are labelled"):
        train_quietly(small("method=stitch", "data.labelling=null"), Path(out))
    assert list(tmp_path.rglob("*")) == [tmp_path / "own"]


def test_a_folder_that_cannot_be_removed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS a file that is removed while it is open gets another name and stays until then."""
    monkeypatch.setattr(Path, "unlink", lambda self: self.rename(self.with_name(".nfs01")))
    with pytest.raises(UserError, match="refused"), Run(tmp_path / "run").locked():
        raise UserError("refused")


def test_what_failed_before_its_first_stage_may_be_mended(
    supervised: Callable[..., Config], dataset: Path, tmp_path: Path, train_quietly: Callable[..., Any]
) -> None:
    data, folder = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "run"
    file = data / "dataset.yaml"
    file.write_text(file.read_text().replace("value: 0\n", "value: 200\n").replace("unpainted: ignore\n", ""))
    settings = (f"data.root={data}", "method.train.steps=1")
    with pytest.raises(UserError, match=r"holds the value 0 .*set `unpainted`"):
        train_quietly(supervised(*settings), folder)
    assert (folder / "config.yaml").exists()
    shutil.copy(dataset / "dataset.yaml", file)
    train_quietly(supervised(*settings, "seed=3"), folder)
    assert Run(folder).config.seed == 3


def test_compute_may_change_and_the_same_path_may_be_written_otherwise(
    begun: Any, train_quietly: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, config = begun
    monkeypatch.chdir(folder)
    Path("stages/1-train/done.json").unlink()
    train_quietly(config("data.root=../data", "compute.log_every=2"), Path())
    assert yaml.safe_load((folder / "config.yaml").read_text())["compute"]["log_every"] == 2
    assert len(json.loads((folder / "environment.json").read_text())["starts"]) == 2


def test_a_start_that_only_scores_is_none_of_the_training(begun: Any, train_quietly: Callable[..., Any]) -> None:
    """Killed while it was scored, and gone on with elsewhere: all steps were in 32."""
    folder, config = begun
    before = Run(folder).config
    train_quietly(config("compute.precision=bf16", "compute.workers=1", "evaluation.flip=true"), folder)
    after = Run(folder).config
    assert after.compute == before.compute
    assert after.evaluation.flip, "by which the scores are"
    assert [start["precision"] for start in read_json(folder / "environment.json")["starts"]] == ["32"]
    assert "in precision 32;" in render_card(Run(folder))


def test_how_a_run_is_scored_may_be_mended_until_it_is(begun: Any, train_quietly: Callable[..., Any]) -> None:
    """As of runs whose slips came to light only after the training; card and scores are by what is said now."""
    folder, config = begun
    with (folder.parent / "data/dataset.yaml").open("a") as file:
        file.write("protocol: cadis\n")
    scored = ("evaluation.splits=[test]", "evaluation.flip=true")
    weights = folder / "stages/1-train/weights.safetensors"
    trained = weights.stat().st_mtime_ns
    assert train_quietly(config(*scored), folder)["test"]["protocol"] == "cadis"
    assert weights.stat().st_mtime_ns == trained
    assert Run(folder).config.evaluation.flip
    assert read_json(folder / "data.json")["protocol"] == "cadis"
    with pytest.raises(UserError, match=r"was started with another config \(evaluation\.flip: true → false\)"):
        train_quietly(config("evaluation.splits=[test]"), folder)
    file = folder.parent / "data/dataset.yaml"
    file.write_text(file.read_text().replace("protocol: cadis\n", ""))
    with pytest.raises(UserError, match=r"was started with other data \(protocol: cadis → default\)"):
        train_quietly(config(*scored), folder)


def test_changed_data_is_refused_and_named(begun: Any, train_quietly: Callable[..., Any]) -> None:
    folder, config = begun
    mask = folder.parent / "data/masks/case01a__frame_000004.png"
    image = cv2.imread(str(mask), cv2.IMREAD_UNCHANGED)
    image[:8, :8] = 1
    cv2.imwrite(str(mask), image)
    with pytest.raises(
        UserError, match=r"was started with other data \(labelled\.case01a/4: \w{8}… → \w{8}…\): restore"
    ):
        train_quietly(config(), folder)
    mask.unlink()
    with pytest.raises(UserError, match=r"was started with other data \(labelled\.case01a/4: \w{8}… → null\): "):
        train_quietly(config(), folder)
    cv2.imwrite(str(mask), image)
    (folder.parent / "data/videos/case02/frame_000003.png").write_bytes(mask.read_bytes())
    with pytest.raises(UserError, match=r"videos\.case02\.sha256: "):
        train_quietly(config(), folder)


def test_other_frames_of_the_same_videos_are_other_data(begun: Any, train_quietly: Callable[..., Any]) -> None:
    folder, config = begun
    assert '"take_every"' not in (folder / "data.json").read_text()
    with (folder.parent / "data/dataset.yaml").open("a") as file:
        file.write("take_every: 3\n")
    with pytest.raises(UserError, match=r"was started with other data \(videos\.case01a\.take_every: null → 3; "):
        train_quietly(config(), folder)


def test_a_new_mask_brings_its_frame_into_thinned_video(
    supervised: Callable[..., Config], dataset: Path, tmp_path: Path, train_quietly: Callable[..., Any]
) -> None:
    """The labels of the run are the same, but not the frames that it learns from and numbers its pseudo labels by."""
    data = tmp_path / "data"
    shutil.copytree(dataset, data)
    masks = sorted((data / "masks").glob("case01a__frame_*"))
    labelled, new = masks[0], masks[-1]
    content = new.read_bytes()
    for mask in masks[1:]:
        mask.unlink()
    with (data / "dataset.yaml").open("a") as file:
        file.write("take_every: 100\n")
    (tmp_path / "labelled.txt").write_text(f"{labelled.stem}\n")
    config = supervised(
        f"data.root={data}", "data.labelling.every=null", f"data.labelling.list={tmp_path}/labelled.txt"
    )
    train_quietly(config, tmp_path / "run")
    new.write_bytes(content)
    index = int(new.stem.rpartition("_")[2])
    with pytest.raises(UserError, match=rf"other data \(videos\.case01a\.masked: null → \[{index}\]\)"):
        train_quietly(config, tmp_path / "run")


@pytest.mark.parametrize("labelling", ["every=4", "ratio=0.25"])
def test_new_labels_that_the_labelling_takes_are_other_data(
    labelling: str, supervised: Callable[..., Config], dataset: Path, tmp_path: Path, train_quietly: Callable[..., Any]
) -> None:
    data = shutil.copytree(dataset, tmp_path / "data")
    masks = list((data / "masks").glob("case02__*"))
    for mask in masks:
        mask.rename(tmp_path / mask.name)
    config = supervised(f"data.root={data}", "data.labelling=null", f"data.labelling.{labelling}")
    train_quietly(config, tmp_path / "run")
    for mask in masks:
        (tmp_path / mask.name).rename(mask)
    with pytest.raises(UserError, match=r"started with other data \(labelled\.case02/0: null → \w{8}…; .*\): restore"):
        train_quietly(config, tmp_path / "run")


def test_run_and_data_can_be_moved_together(
    supervised: Callable[..., Config],
    dataset: Path,
    tmp_path: Path,
    train_quietly: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    shutil.copytree(dataset, here / "data")
    monkeypatch.chdir(here)
    config = supervised("data.root=data", "evaluation.splits=[test]")
    scores = train_quietly(config, Path("runs/one"))
    assert yaml.safe_load(Path("runs/one/config.yaml").read_text())["data"]["root"] == "../../data"
    shutil.move(here, tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert evaluate_run(Path("there/runs/one")) == scores
    monkeypatch.chdir("there")
    train_quietly(config, Path("runs/one"))


def test_a_folder_that_is_no_run_or_not_finished_is_refused(tmp_path: Path, finished: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run folder: it has no config\.yaml"):
        evaluate_run(tmp_path)
    assert not list(tmp_path.iterdir())
    shutil.copy(finished / "config.yaml", tmp_path)
    with pytest.raises(UserError, match=r"model\.(json|safetensors) is missing"):
        evaluate_run(tmp_path)
    shutil.copy(finished / "model.json", tmp_path)  # and without its weights
    with pytest.raises(UserError, match=r"model\.(json|safetensors) is missing"):
        evaluate_run(tmp_path)


def test_lost_weights_of_a_stage_are_told_with_the_way_to_make_them_again(
    begun: Any, train_quietly: Callable[..., Any]
) -> None:
    folder, config = begun
    stage, model = folder / "stages/1-train", (folder / "model.safetensors").read_bytes()
    (stage / "weights.safetensors").unlink()
    with pytest.raises(UserError, match=r"weights\.safetensors does not exist, .* remove done\.json beside it"):
        train_quietly(config(), folder)
    (stage / "done.json").unlink()
    train_quietly(config(), folder)
    assert (folder / "model.safetensors").read_bytes() == model


def test_a_training_video_with_every_frame_excluded_is_passed_over(
    begun: Any, train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    _, config = begun
    (tmp_path / "data/exclude.csv").write_text("video,first,last,reason\ncase01a,0,11,out of body\n")
    train_quietly(config(), tmp_path / "other")
    assert "case01a" not in read_json(tmp_path / "other/shots.json")
