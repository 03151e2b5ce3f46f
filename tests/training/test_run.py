"""Training in one process: what is printed and logged, what is refused before anything starts, scores again."""

import io
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import yaml
from rich.console import Console

from suture.checks.check import check
from suture.comparison.results import read_run
from suture.core.errors import UserError
from suture.data import messages
from suture.deployment.model_card import render_card
from suture.methods.stage import Stage
from suture.models.encoder_weights import read_tensors
from suture.training.callbacks import Curve, StageProgress
from suture.training.config import Config
from suture.training.distributed import Processes
from suture.training.run_folder import Run, read_curve
from suture.training.train import evaluate_run, train


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_stage_k_of_n(
    terminal: bool, dataset: Path, supervised: Callable[..., Config], tmp_path: Path
) -> None:
    """On a terminal with a bar; in a log file with lines, from the first step on. First what the source has to say."""
    text = io.StringIO()
    shutil.copytree(dataset, tmp_path / "mine")
    (tmp_path / "mine/exclude.csv").write_text("video,first,last,reason\n")
    mask = next((tmp_path / "mine/masks").rglob("*.png"))
    shutil.copy(mask, mask.with_name("img0.png"))
    described = tmp_path / "mine/dataset.yaml"
    by_name = "" if terminal else "videos_by: name\n"
    described.write_text(by_name + re.sub(r"(?m)^exclude:.*\n", "", described.read_text()))
    config = supervised("evaluation.splits=[test]", f"data.root={tmp_path / 'mine'}")
    train(config, tmp_path / "run", Console(file=text, force_terminal=terminal, width=100, color_system=None))
    labelled = "9 labelled (25.0%, by data.labelling, of 36 with masks)"
    videos = "3 training videos" if terminal else "3 training videos (separated by the names of images)"
    assert f"{videos} of 2 cases, 36 frames, {labelled}; supervised, seed 0: train" in text.getvalue()
    assert text.getvalue().startswith("exclude.csv is not read")
    assert "1 mask of no frame, such as img0.png: name each mask as its frame" in text.getvalue()
    assert "stage 1 of 1: train" in text.getvalue()
    assert "4/4 loss " in text.getvalue()
    assert "img/s" in text.getvalue()
    assert "evaluate test" in text.getvalue()
    assert ("stage 1 of 1: train begins, 4 steps" in text.getvalue()) != terminal


def test_terminal_curve_and_tables_count_the_same_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 4 labelled and 8 unlabelled frames, in two seconds."""
    facts = {"steps": 1, "batch": 4, "unlabelled_batch": 8}
    stage = SimpleNamespace(
        settings=SimpleNamespace(batch=4, accumulate=1),
        total_steps=1,
        last_loss=torch.tensor(0.5),
        last_taught=None,
        facts=lambda: facts,
    )
    loop: Any = SimpleNamespace(
        stage=stage, step=0, is_first=True, optimizer=SimpleNamespace(param_groups=[{"lr": 0.1}])
    )
    text, now = io.StringIO(), [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    curve = Curve(tmp_path / "metrics.csv", 1, tmp_path / "last.ckpt")
    callbacks = curve, StageProgress("train", Console(file=text, width=100))
    for callback in callbacks:
        callback.on_start(loop)
    now[0], loop.step = 2.0, 1
    for callback in callbacks:
        callback.on_step_end(loop)
        callback.on_close(loop)
    assert "6.0 img/s" in text.getvalue()
    assert read_curve(tmp_path / "metrics.csv")[0]["images_per_second"] == 6


def test_another_logger_by_one_line(supervised: Callable[..., Config], tmp_path: Path) -> None:
    kind = "lightning.pytorch.loggers.CSVLogger"
    config = supervised(f"compute.logger={{kind: {kind}, arguments: {{save_dir: {tmp_path}/logs, name: mine}}}}")
    train(config, tmp_path / "run", Console(quiet=True))
    (file,) = (tmp_path / "logs/mine").rglob("metrics.csv")
    assert "train/loss" in file.read_text().splitlines()[0]
    assert len(file.read_text().splitlines()) == 5
    assert list((tmp_path / "run/stages/1-train/tensorboard").glob("events.*"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.encoder=resnet5O", "encoder: there is no 'resnet5O'; did you mean"),
        ("model.architecture=deeplab", "architecture: there is no 'deeplab'"),
        ("model.weights=missing.pth", "missing.pth cannot be read"),
        ("data.root=nowhere", "nowhere does not exist"),
        ("data.source=mine", "There is no source 'mine'"),
        ("data.validation=[case09]", "data.validation names 'case09'"),
        ("data.validation=[case01, case02]", "data.validation takes all training videos"),
        ("evaluation.scales=[0.001]", "evaluation.scales are [0.001], expected numbers from 0.25 to 4."),
        ("method={name: dmt, pseudo: {scales: [0.1]}}", "method.pseudo.scales are [0.1], expected numbers from 0.25"),
        ("evaluation.include_background=false", "evaluation.include_background is false, but no class is called backg"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_is_written(
    setting: str, message: str, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        train_quietly(supervised(setting), tmp_path / "runs/more/run")
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cadiss", r"The protocol in dataset\.yaml is 'cadiss', expected one of .* \(did you mean cadis\?\)"),
        ("vocalfolds-patients", r"The protocol in dataset\.yaml is vocalfolds-patients, which leaves out pathology"),
    ],
)
def test_a_wrong_protocol_is_told_before_the_training_and_by_check(
    name: str,
    message: str,
    dataset: Path,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    root = shutil.copytree(dataset, tmp_path / "mine")
    with (root / "dataset.yaml").open("a") as file:
        file.write(f"protocol: {name}\n")
    with pytest.raises(UserError, match=message) as caught:
        train_quietly(supervised(f"data.root={root}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (problem,) = [one for one in check(root, progress=False).problems if one.severity == "fatal"]
    assert str(caught.value) == f"{problem.what}: {problem.fix}."


def test_where_nothing_is_labelled_it_says_why_as_check_does(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    masks = tmp_path / "masks"
    masks.mkdir()
    for path in (dataset / "masks").rglob("case02*.png"):  # those of 64×64 have hardly any flat areas
        cv2.imwrite(str(masks / path.name), np.repeat(np.repeat(cv2.imread(str(path), -1), 8, 0), 8, 1))
    with pytest.raises(UserError) as caught:
        train_quietly(supervised(f"data.root={masks}"), tmp_path / "run")
    (problem,) = [one for one in check(masks, progress=False).problems if one.severity == "fatal"]
    assert str(caught.value) == f"{masks}: {problem.what} (first: {problem.first}); {problem.fix}."
    shutil.copytree(dataset, tmp_path / "mine", ignore=shutil.ignore_patterns("dataset.yaml"))
    with pytest.raises(UserError, match=r"does not define their values.* --write` drafts it"):
        train_quietly(supervised(f"data.root={tmp_path / 'mine'}"), tmp_path / "run")
    shutil.rmtree(tmp_path / "mine/masks")
    with pytest.raises(UserError, match="No frame has a mask; `suture select` chooses frames"):
        train_quietly(supervised(f"data.root={tmp_path / 'mine'}"), tmp_path / "run")


def test_masks_that_cannot_be_used_are_told_before_frames_are_stored(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    root, cache = tmp_path / "mine", tmp_path / "cache"
    shutil.copytree(dataset, root)
    config = supervised(f"data.root={root}", f"data.cache={cache}")

    def refused() -> str:
        with pytest.raises(UserError) as caught:
            train_quietly(config, tmp_path / "run")
        assert not list(cache.glob("frames/*"))
        return str(caught.value)

    twice = next((root / "masks").rglob("case02*.png"))
    shutil.copy(twice, root / "masks" / f"deadbeef-{twice.name}")
    assert re.match(r"The mask .*\.png fits case02.*, which has the mask .*\.png: .* keep one mask", refused())
    assert not (tmp_path / "run/config.yaml").exists()
    (root / "masks" / f"deadbeef-{twice.name}").unlink()

    small = next((root / "masks").rglob("case02*_000000.png"))
    whole = small.read_bytes()
    cv2.imwrite(str(small), cv2.imread(str(small), -1)[:32, :48])
    assert refused() == f"{small} is 48×32 on a frame of 64×64: {messages.SIZE}."
    small.write_bytes(whole)

    said = yaml.safe_load((root / "dataset.yaml").read_text())
    del said["unpainted"], said["classes"][0]
    (root / "dataset.yaml").write_text(yaml.safe_dump(said))
    assert re.search(r"masks/case0.* holds the value 0", told := refused())
    assert told.endswith(f": {messages.UNPAINTED}.")


def test_classes_that_no_labelled_frame_shows_are_named(
    dataset: Path, supervised: Callable[..., Config], tmp_path: Path
) -> None:
    """`check` looks at all masks, and knows nothing of those that a labelling leaves out."""
    root, text = tmp_path / "mine", io.StringIO()
    shutil.copytree(dataset, root)
    for path in (root / "masks").glob("*__frame_*[048].png"):  # of which every fourth is labelled
        cv2.imwrite(str(path), np.where(np.arange(64) < 32, 0, 2)[None].repeat(64, 0).astype(np.uint8))
    train(supervised(f"data.root={root}"), tmp_path / "run", Console(file=text, width=200))
    assert "No labelled frame shows liver, vessel, instrument-shaft, " in text.getvalue()
    assert "thread and 2 more: they cannot be learnt." in text.getvalue()


@pytest.mark.parametrize(
    ("keys", "cases", "is_told"),
    [
        ("{}", 1, True),
        ("{mode: bank, other_videos: all}", 1, True),
        ("{other_videos: 0}", 1, False),
        ("{apart: video}", 1, False),
        ("{}", 2, False),
    ],
)
def test_a_contrast_without_other_videos_gives_a_hint(
    pgvcl: Callable[..., Config], keys: str, cases: int, is_told: bool
) -> None:
    """Two videos of one case are other videos only if `apart` says so."""
    stages = pgvcl(f"method.contrast.keys={keys}").build_method().stages()
    contrast = next(stage for stage in stages if stage.name == "contrast")
    assert isinstance(contrast, Stage)
    assert ("--set method.contrast.keys.apart=video" in (contrast.hint(cases, 2) or "")) == is_told


def test_a_video_without_frames_is_no_other_video(dataset: Path, pgvcl: Callable[..., Config], tmp_path: Path) -> None:
    """Of the two videos of one case one is excluded: no setting has keys of another."""
    shutil.copytree(dataset, tmp_path / "mine")
    (tmp_path / "mine/exclude.csv").write_text("video,first,last,reason\ncase01b,0,11,out of body\n")
    described = tmp_path / "mine/dataset.yaml"
    described.write_text(re.sub(r"(?m)^exclude:.*\n", "", described.read_text()) + "exclude: exclude.csv\n")
    text = io.StringIO()
    settings = (f"data.root={tmp_path / 'mine'}", "data.validation=[case02]", "method.contrast.keys={apart: video}")
    train(pgvcl(*settings), tmp_path / "run", Console(file=text, width=40))
    assert "There is only one training video: the contrast has no keys of other videos" in text.getvalue()


def test_labels_that_are_ignored_throughout_are_refused(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """The loss would be 0 from the first step to the last."""
    root = tmp_path / "mine"
    shutil.copytree(dataset, root)
    said = yaml.safe_load((root / "dataset.yaml").read_text())
    said["classes"].append({"name": "void", "value": 250, "ignore": True})
    (root / "dataset.yaml").write_text(yaml.safe_dump(said))
    for path in (root / "masks").glob("*.png"):
        cv2.imwrite(str(path), np.full((64, 64), 250, np.uint8))
    with pytest.raises(UserError, match="Every pixel of the labelled training frames is ignored") as caught:
        train_quietly(supervised(f"data.root={root}"), tmp_path / "run")
    assert "learn from more of the frames that have masks" in str(caught.value)


def test_labels_that_show_a_single_class_are_refused(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """The scores would be perfect, of nothing."""
    root = shutil.copytree(dataset, tmp_path / "mine")
    for path in (root / "masks").glob("*__frame_*[048].png"):  # of which every fourth is labelled
        cv2.imwrite(str(path), np.full((64, 64), 2, np.uint8))
    with pytest.raises(UserError, match="show no class but one: fat") as caught:
        train_quietly(supervised(f"data.root={root}"), tmp_path / "run")
    assert "learn from more of the frames that have masks" in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("evaluation.splits=[]", "case02__frame_000004.png"),  # learnt from
        ("evaluation.splits=[test]", "case04__frame_000003.png"),
        ("evaluation.completion=true", "case02__frame_000001.png"),
    ],
)
def test_a_mask_is_told_of_before_the_training_and_with_the_mend_of_check(
    setting: str,
    wrong: str,
    dataset: Path,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    root, cache = tmp_path / "mine", tmp_path / "cache"
    shutil.copytree(dataset, root)
    cv2.imwrite(str(root / "masks" / wrong), np.full((64, 64, 3), (0, 94, 213), np.uint8))
    with pytest.raises(UserError, match=f"{wrong} is a colour image, but the class table is given by ids"):
        train_quietly(supervised(f"data.root={root}", f"data.cache={cache}", setting), tmp_path / "run")
    assert not list(cache.glob("frames/*"))


@pytest.mark.parametrize("settings", [("evaluation.splits=[val]",), ("evaluation.completion=true",)])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("small", r"frame_000005\.png is 32×32 on a frame of 64×64"),
        ("text", r"frame_000005\.png is not an image"),
        ("frame", r"frame_000005\.png is 32×32 on a frame of 64×64"),
    ],
)
def test_every_mask_that_is_scored_is_looked_at_before_the_training(
    how: str,
    told: str,
    settings: tuple[str, ...],
    dataset: Path,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its header: read are some alone, of which this is none."""
    monkeypatch.setattr("suture.checks.check.MAX_SCORED_MASKS_READ", 1)
    root, cache = shutil.copytree(dataset, tmp_path / "mine"), tmp_path / "cache"
    video = "case02" if "completion" in settings[0] else "case03"
    mask = root / f"masks/{video}__frame_000005.png"
    small = np.zeros((32, 32), np.uint8)
    if how == "text":
        mask.write_text("no image")
    else:
        cv2.imwrite(str(mask), small)
    if how == "frame":
        cv2.imwrite(str(sorted((root / "videos" / video).iterdir())[5]), small)
    with pytest.raises(UserError, match=told):
        train_quietly(supervised(f"data.root={root}", f"data.cache={cache}", *settings), tmp_path / "run")
    assert not list(cache.glob("frames/*"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["stitch", "uamt", "unimatch"])
def test_an_unlabelled_batch_that_cannot_be_divided_is_refused_before_frames_are_stored(
    method: str, small: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    divided = ("method.train.accumulate=2", "method.train.unlabelled_batch=3", "method.train.batch=4")
    with pytest.raises(UserError) as caught:
        train_quietly(small(f"method={method}", *divided, f"data.cache={tmp_path / 'cache'}"), tmp_path / "run")
    assert str(caught.value) == (
        "method.train.unlabelled_batch is 3, which cannot be divided among 1 process × accumulate 2: "
        "choose a multiple of 2."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["stitch", "uamt", "unimatch", "dmt"])
def test_without_unlabelled_frames_it_is_refused_before_they_are_stored(
    method: str, small: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    instead = "strong" if method == "stitch" else "supervised"
    settings = (f"method={method}", "data.labelling=null", f"data.cache={tmp_path / 'cache'}")
    with pytest.raises(UserError, match=rf"all 36 training frames are labelled .*: use {instead} "):
        train_quietly(small(*settings), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_segmenter_that_a_method_cannot_use_is_refused_before_frames_are_stored(
    small: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """And before the run is begun: with the architecture changed, it could not go on in the same folder."""
    settings = ("method=uamt", "model.architecture=unet", f"data.cache={tmp_path / 'cache'}")
    with pytest.raises(UserError, match="uamt needs dropout and unet with tu-test_resnet has none"):
        train_quietly(small(*settings), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_batch_that_cannot_be_divided_is_refused(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = Processes(0, 3, 0, 3, torch.device("cpu"))
    monkeypatch.setattr(Processes, "start", staticmethod(lambda compute: three))
    monkeypatch.setattr(Processes, "gather", lambda self, value: [value] * 3)
    with pytest.raises(UserError, match=r"method\.train\.batch is 4, .* among 3 processes"):
        train_quietly(supervised(), tmp_path)


def test_a_finished_run_says_so_and_stays_as_it_is(
    finished: Path, pgvcl: Callable[..., Config], tmp_path: Path
) -> None:
    """Its papers tell of the machine and the precision that it was trained with; nothing is stored to learn from."""
    run, cache, said = tmp_path / "run", tmp_path / "cache", io.StringIO()
    shutil.copytree(finished, run)
    (run / "stages/.DS_Store").touch()  # as macOS leaves it in folders that somebody has looked into
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("cache: null", f"cache: {cache}"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    settings = ("evaluation.splits=[val, test]", "evaluation.completion=true", f"data.cache={cache}")
    metrics = train(pgvcl(*settings, "compute.precision=bf16"), run, Console(file=said, width=200))
    assert "The run is finished: nothing is trained." in said.getvalue()
    assert metrics == json.loads((finished / "metrics.json").read_text())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"} == before
    assert not list(cache.glob("frames/*"))
    assert "in precision 32;" in render_card(Run(run))


def test_a_finished_run_whose_model_is_lost_writes_it_again(
    finished: Path, pgvcl: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "model.safetensors").unlink()
    scores = (run / "metrics.json").read_bytes()
    train_quietly(pgvcl("evaluation.splits=[val, test]", "evaluation.completion=true"), run)
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert (run / "metrics.json").read_bytes() == scores


def test_evaluating_again_gives_the_same_scores(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    before = (finished / "metrics.json").read_text()
    (tmp_path / "run/metrics.json").unlink()
    evaluate_run(tmp_path / "run", console=Console(quiet=True))
    assert (tmp_path / "run/metrics.json").read_text() == before
    assert json.loads(before).keys() == {"val", "test", "completion"}


def test_scores_say_in_which_precision_they_were_made(finished: Path, tmp_path: Path) -> None:
    """Whatever the training's was, which config and environment go on to tell of."""
    run = shutil.copytree(finished, tmp_path / "run")

    def told() -> tuple[set[str], str, str]:
        scored = {one["precision"] for one in json.loads((run / "metrics.json").read_text()).values()}
        facts = read_run(run).facts
        return scored, facts["precision"], facts["precision_at_evaluation"]

    assert told() == ({"32"}, "32", "as trained")
    evaluate_run(run, ["compute.precision=bf16"], Console(quiet=True))
    assert told() == ({"bf16"}, "32", "bf16")
    assert (run / "environment.json").read_text() == (finished / "environment.json").read_text()


def test_evaluating_with_other_settings(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    settings = ["evaluation.splits=[test]", "evaluation.completion=false", "evaluation.flip=true", "evaluation.batch=3"]
    before = (finished / "metrics.json").read_text()
    assert evaluate_run(tmp_path / "run", settings, Console(quiet=True)).keys() == {"test"}
    assert (tmp_path / "run/metrics.json").read_text() == before, "which are the scores by the run's own settings"
    with pytest.raises(UserError, match="the settings given: found 'seed=3', but only compute and evaluation can be"):
        evaluate_run(tmp_path / "run", ["seed=3"])
    with pytest.raises(UserError, match=r"evaluation\.scales are \[9\.0\], expected numbers from 0\.25 to 4"):
        evaluate_run(tmp_path / "run", ["evaluation.scales=[9]"])


def test_validation_is_carved_out_of_the_training_cases(
    supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    config = supervised("data.validation=[case02]", "evaluation.splits=[val]", "evaluation.completion=true")
    metrics = train_quietly(config, tmp_path)
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["videos"]["case02"]["split"] == "val"
    assert all(name.startswith("case01") for name in data["labelled"])
    assert metrics["val"]["videos"].keys() == {"case02", "case03"}
    assert metrics["completion"]["videos"].keys() == {"case01a", "case01b"}
    assert metrics["val"]["classes"]["gauze"]["frames"], "which no training video shows: case03 is the dataset's own"
    assert metrics["val"]["left_out"] == []


def test_a_class_that_validation_took_out_of_training_is_left_out_of_its_scores(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """Of the training cases case02 alone shows gauze. What chooses the best weights goes by the same scores."""
    data, run = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "run"
    described = data / "dataset.yaml"
    described.write_text(described.read_text().replace("  val: [case03]\n", ""))
    unused = data / "masks/case01a__frame_000001.png"
    cv2.imwrite(str(unused), np.zeros((8, 8), np.uint8))
    settings = (f"data.root={data}", "data.validation=[case02]", "method.train.best_every=2")
    metrics = train_quietly(supervised(*settings, "evaluation.splits=[val, test]"), run)
    assert metrics["val"]["left_out"] == ["gauze"]
    assert metrics["val"]["notes"] == ["gauze left out of validation: no training video shows it"]
    assert "gauze" not in metrics["val"]["classes"]
    assert not any(metrics["val"]["confusion"][9]), "where the truth is gauze, nothing is asked"
    best = json.loads((run / "stages/1-train/done.json").read_text())["best"]
    assert best["score"] == metrics["val"]["primary"]["value"]
    assert metrics["test"]["left_out"] == metrics["test"]["notes"] == []
    assert metrics["test"]["classes"]["gauze"]["frames"]
    for mask in data.glob("masks/case01*"):  # on a disk that is away, say: what was decided stays so
        mask.unlink()
    assert evaluate_run(run, console=Console(quiet=True)) == metrics
    record = json.loads((run / "data.json").read_text())
    assert record.pop("unlearnt") == ["gauze"]
    (run / "data.json").write_text(json.dumps(record))
    earlier = evaluate_run(run, console=Console(quiet=True))
    assert earlier["val"]["left_out"] == [], "a run of an earlier version is scored as it was"


def test_values_that_mean_other_classes_are_other_data(
    dataset: Path, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    data, run = shutil.copytree(dataset, tmp_path / "data"), tmp_path / "run"
    config = supervised(f"data.root={data}")
    train_quietly(config, run)
    said = yaml.safe_load((data / "dataset.yaml").read_text())
    liver, fat = said["classes"][1], said["classes"][2]
    liver["value"], fat["value"] = fat["value"], liver["value"]
    (data / "dataset.yaml").write_text(yaml.safe_dump(said))
    with pytest.raises(UserError, match=r"other data (.values.1: liver → fat; values.2: fat → liver.)"):
        train_quietly(config, run)
    with pytest.raises(UserError, match="was trained with other classes"):
        evaluate_run(run, console=Console(quiet=True))


def test_without_the_store_the_outcome_is_the_same(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    train_quietly(supervised(), tmp_path / "a")
    request.getfixturevalue("without_store")
    train_quietly(supervised(), tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_another_run_finds_the_shots_there(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_quietly(supervised(), tmp_path / "a")
    monkeypatch.setattr("suture.data.shots._stored_curve", pytest.fail)
    train_quietly(supervised("seed=1", "data.labelling.every=6"), tmp_path / "b")
    assert (tmp_path / "a/shots.json").read_bytes() == (tmp_path / "b/shots.json").read_bytes()


def test_bf16_and_clipped_gradients(
    pgvcl: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """Every stage in mixed precision, the bank too; and SGD by a gradient of hardly any length stays where it is."""
    settings = ("compute.precision=bf16", "method.contrast.keys.mode=bank", "method.pretrain.optimizer.kind=sgd")
    for name, clip in (("free", "null"), ("clipped", "1e-12")):
        clipped = ("method.pretrain.optimizer.weight_decay=0", f"method.pretrain.optimizer.clip={clip}")
        train_quietly(pgvcl(*settings, "method.pretrain.optimizer.lr=0.1", *clipped), tmp_path / name)
    free, still = (
        read_tensors(tmp_path / name / "stages/1-pretrain/weights.safetensors") for name in ("free", "clipped")
    )
    moved = [(free[name] - still[name]).abs().max() for name in free if name.startswith("head.classifier")]
    assert max(moved) > 1e-4
    assert json.loads((tmp_path / "free/environment.json").read_text())["starts"][0]["precision"] == "bf16"
    final = read_tensors(tmp_path / "free/model.safetensors")
    assert all(t.isfinite().all() and t.dtype != torch.bfloat16 for t in final.values())


def test_loader_processes_change_nothing(
    pgvcl: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    for name, workers in (("a", 0), ("b", 2)):
        train_quietly(pgvcl("method.contrast.accumulate=2", f"compute.workers={workers}"), tmp_path / name)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
