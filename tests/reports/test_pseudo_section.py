"""Pseudo labels are judged by the dataset's protocol, and finished runs have pictures of unlabelled frames."""

import io
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console
from tiny_runs import Runs

from suture.core.io import read_json
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.labelling import Labelling, frame_name
from suture.data.read_scenes import read_scene
from suture.evaluation.scoring import protocol_of, scores
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.models.model import load_model
from suture.reports.frame_choice import EVENLY
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery
from suture.reports.pseudo_section import (
    PseudoQuality,
    judge_pseudo_labels,
    pseudo_pictures,
    pseudo_qualities,
    pseudo_section,
)
from suture.reports.report import write_report
from suture.reports.report_context import ReportContext
from suture.reports.reported_run import read_runs
from suture.training.config import load_config
from suture.training.run_folder import Run
from suture.training.train import train

STAGE = PseudoLabels("pseudo", PseudoSettings())


def judged(
    root: Path, truth: np.ndarray, pseudo: np.ndarray, names: tuple[str, ...], protocol: str, background: bool = True
) -> PseudoQuality:
    """Quality of one pseudo label, checked against the scorer."""
    for index in range(2):
        cv2.imwrite(str(root / f"frame_{index}.png"), np.zeros((*truth.shape, 3), np.uint8))
        cv2.imwrite(str(root / f"mask_{index}.png"), truth)
    frames = [Frame(i, i, root / f"frame_{i}.png", MaskFile(root / f"mask_{i}.png", ids=True)) for i in range(2)]
    table = ClassTable(names, ((0, 0, 0),) * len(names), {i: i for i in range(len(names))})
    dataset = Dataset("tiny", root, table, [Video("v", "c", frames, "train")], protocol=protocol)
    folder = STAGE.folder(root / "run")
    folder.mkdir(parents=True)
    np.save(folder / "v.labels.npy", pseudo[None])
    np.save(folder / "v.confidence.npy", np.full_like(pseudo, 255)[None])
    rules = protocol_of(dataset, background)
    judge = FrameScorer(dataset, rules)
    scorer = judge.scorer()
    scorer.add("v", 1, pseudo, truth)
    quality = judge_pseudo_labels(STAGE, root / "run", judge, Labelling({"v": [0]}))
    expected = scores(dataset, rules, scorer)["overall"]
    assert (quality.miou, quality.pa) == (expected["miou"], expected["pa"])
    assert quality.frames["v", 1].iou == expected["miou_frames"]
    return quality


def test_class_that_the_protocol_leaves_out_is_not_in_the_mean(tmp_path: Path) -> None:
    truth = np.repeat(np.uint8([[0], [1]]), 50, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = 2
    names = ("void", "vocal folds", "pathology")
    quality = judged(tmp_path, truth, pseudo, names, "vocalfolds-patients")
    assert quality.miou == pytest.approx((0.98 + 1) / 2)
    assert quality.pa == pytest.approx(0.99)


def test_background_is_left_out_as_in_the_run(tmp_path: Path) -> None:
    truth = np.repeat(np.uint8([[0], [1]]), 4, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = 1
    quality = judged(tmp_path, truth, pseudo, ("background", "tool"), "default", background=False)
    assert quality.miou == quality.frames["v", 1].iou == pytest.approx(4 / 5)


def test_frame_without_counted_classes_has_no_score(tmp_path: Path) -> None:
    truth = np.zeros((2, 4), np.uint8)
    quality = judged(tmp_path, truth, truth, ("background", "tool"), "default", background=False)
    assert quality.miou is None
    assert quality.frames["v", 1].iou is None


NO_LABELS = "no pseudo labels are kept; the pictures show the predictions of"


@pytest.fixture(scope="module")
def taught(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs with a teacher that predicts pseudo labels in every step, and keeps none."""
    settings = ("data.size=32", "data.labelling.every=6", "method.train.steps=2")
    root = tmp_path_factory.mktemp("taught")
    folders = {name: root / name for name in ("stitch", "uamt")}
    for name, folder in folders.items():
        train(load_config(runs.data, "demo", [f"method={name}", *settings]), folder, Console(file=io.StringIO()))
    return folders


def show(console: Console, *folders: Path) -> tuple[list[str], Gallery]:
    """Sentences and pictures of the section."""
    context = ReportContext(read_runs(folders), frames=True, console=console)
    qualities = pseudo_qualities(context)
    gallery = pseudo_pictures(context, qualities)
    section = pseudo_section(context, qualities, has_pictures=gallery is not None)
    assert section is not None
    assert gallery is not None
    return section["descriptions"], gallery


def titles(gallery: Gallery) -> list[str]:
    return [panel.title for panel in gallery.panels]


def test_predictions_are_shown_of_runs_without_pseudo_labels(
    runs: Runs, taught: dict[str, Path], console: Console
) -> None:
    descriptions, gallery = show(console, taught["stitch"], taught["uamt"], runs.supervised)
    assert descriptions == [
        f"stitch: {NO_LABELS} the teacher at the end of training.",
        f"uamt and supervised: {NO_LABELS} the model at the end of training.",
    ]
    assert titles(gallery) == ["truth", "teacher of stitch, final", "uamt, final", "supervised, final"]
    (run,) = read_runs([taught["stitch"]])
    assert all(index not in run.labelled[name] for name, index in gallery.chosen)
    assert list(gallery.groups)[:3] == ["worst", "median", "best"]
    assert all(len(panel.scores) == len(gallery.chosen) for panel in gallery.panels[1:])
    assert all(note.endswith("from a labelled one") for note in gallery.notes.values())


def test_confidence_of_dmt_is_that_of_the_network(runs: Runs, tmp_path: Path, console: Console) -> None:
    """It is stored as the logarithm of the doubt."""
    short = ("method.pretrain={steps: 2, batch: 2}", "method.round={steps: 2, batch: 2, labelled: 1}")
    settings = ["data.size=32", "data.labelling.every=6", "method=dmt", "method.rates=[1.0]", *short]
    dmt = tmp_path / "dmt"
    train(load_config(runs.data, "demo", settings), dmt, console)
    descriptions, gallery = show(console, dmt, runs.pgvcl)
    assert re.match(r"dmt: its pseudo labels have [\d.]+ mIoU and [\d.]+ pixel accuracy, on 33 un", descriptions[0])
    labels = ["pseudo label of dmt", "pseudo label of pgvcl"]
    assert titles(gallery) == ["truth", *labels, "dmt, final", "pgvcl, final"]

    network = Run(dmt).segmenter().describe()
    labeller = load_model(dmt / "stages" / "2-pretrain-b" / "weights.safetensors", network).eval()
    for (name, index), note in gallery.notes.items():
        image = torch.from_numpy(read_scene(gallery.videos[name], index, (32, 32))).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            confidence = labeller(image).softmax(1).amax(1)[0].numpy()
        inside = np.load(dmt / "pseudo" / "labels-1-b" / f"{name}.labels.npy")[0] != IGNORE
        shown = re.search(r"mean confidence ([\d.]+) %", note)
        assert shown
        half_a_level = 100 * (2 ** (12 / 255) - 1)  # coarse where the doubt is large, as after two steps
        assert float(shown[1]) == pytest.approx(100 * confidence[inside].mean(), abs=half_a_level)


def test_run_of_a_teacher_on_the_page(taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    figures = tmp_path / "figures"
    page = write_report([taught["stitch"]], tmp_path / "report.html", console=console, figures=figures).read_text()
    done = read_json(taught["stitch"] / "stages/1-train/done.json")
    images = done["batch"] + done["unlabelled_batch"]
    assert f'<td class="right">{done["steps"]}</td><td class="right">{images}</td>' in page
    assert "The pictures are the worst, median and best of 33 unlabelled training frames" in page
    assert (figures / "pseudo-labels.png").exists()


def test_removed_pseudo_labels(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = shutil.copytree(runs.unmasked, tmp_path / "tidied")
    shutil.rmtree(run / "pseudo")
    descriptions, gallery = show(console, run)
    assert descriptions == [f"tidied: {NO_LABELS} the model at the end of training."]
    assert titles(gallery) == ["tidied, final"], "the frames have no truth"
    assert set(map(tuple, gallery.chosen.values())) == {(EVENLY,)}


def test_run_on_all_labels_beside_one_on_few(
    runs: Runs, taught: dict[str, Path], tmp_path: Path, console: Console
) -> None:
    full = tmp_path / "full"
    settings = ["method=supervised", "data.size=32", "data.labelling.every=1", "method.train.steps=1"]
    train(load_config(runs.data, "demo", settings), full, console)
    _, gallery = show(console, full, taught["stitch"])
    assert titles(gallery) == ["truth", "full, final", "teacher of stitch, final"]
    (run,) = read_runs([taught["stitch"]])
    assert not any(index in run.labelled[name] for name, index in gallery.chosen)
    assert all(note.endswith("from a labelled one") for note in gallery.notes.values())
    alone = ReportContext(read_runs([full]), frames=True, console=console)
    assert pseudo_pictures(alone, pseudo_qualities(alone)) is None, "no training frame was unlabelled"


def test_invalid_masks_are_no_truth(runs: Runs, taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    data = shutil.copytree(runs.data, tmp_path / "data")
    copies = [shutil.copytree(run, tmp_path / "runs" / run.name) for run in (taught["stitch"], runs.pgvcl)]
    for run in copies:
        config = run / "config.yaml"
        config.write_text(re.sub(r"(?m)^  root: .*", f"  root: {data}", config.read_text()))
    (run,) = read_runs(copies[:1])
    train_video, test_video = (next(iter(run.videos(split))) for split in ("train", "test"))
    no_image, too_small, unknown = (data / "masks" / f"{frame_name(train_video, i)}.png" for i in (1, 2, 3))
    cv2.imwrite(str(too_small), np.zeros((8, 8), np.uint8))
    cv2.imwrite(str(unknown), np.full((64, 64), 99, np.uint8))
    for file in (no_image, data / "masks" / f"{frame_name(test_video, 0)}.png"):
        file.write_text("no image")
    for folder in copies:
        page = write_report([folder], tmp_path / "r.html", console=console).read_text()
        assert "best of 30 unlabelled training frames" in page
    assert "on 30 unlabelled training frames with masks" in page
