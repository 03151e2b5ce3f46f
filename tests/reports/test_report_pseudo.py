"""Pseudo labels are judged by the dataset's protocol, as the run's own scores are; finished runs have pictures."""

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
from suture.reports.context import Context
from suture.reports.overlays import EVENLY, Gallery, Judge
from suture.reports.pseudo_section import PseudoQuality, pseudo_labels, pseudo_pictures, pseudo_quality, pseudo_section
from suture.reports.report import write_report
from suture.reports.run_facts import read_runs
from suture.training.config import load_config
from suture.training.run_folder import Run
from suture.training.train import train

STAGE = PseudoLabels("pseudo", PseudoSettings())


def judged(
    root: Path, truth: np.ndarray, pseudo: np.ndarray, names: tuple[str, ...], protocol: str, background: bool = True
) -> PseudoQuality:
    """A labelled frame and one with a pseudo label, which is held against its mask."""
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
    judge = Judge(dataset, rules)
    scorer = judge.scorer()
    scorer.add("v", 1, pseudo, truth)
    quality = pseudo_quality(STAGE, root / "run", judge, Labelling({"v": [0]}))
    expected = scores(dataset, rules, scorer)["overall"]
    assert (quality.miou, quality.pa) == (expected["miou"], expected["pa"])
    assert quality.frames["v", 1].iou == expected["miou_frames"]
    return quality


def test_a_class_that_the_protocol_leaves_out_is_no_class_of_the_mean(tmp_path: Path) -> None:
    truth = np.repeat(np.uint8([[0], [1]]), 50, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = 2
    names = ("void", "vocal folds", "pathology")
    quality = judged(tmp_path, truth, pseudo, names, "vocalfolds-patients")
    assert quality.miou == pytest.approx((0.98 + 1) / 2)
    assert quality.pa == pytest.approx(0.99)


def test_the_background_is_left_out_where_the_run_leaves_it_out(tmp_path: Path) -> None:
    truth = np.repeat(np.uint8([[0], [1]]), 4, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = 1
    quality = judged(tmp_path, truth, pseudo, ("background", "tool"), "default", background=False)
    assert quality.miou == quality.frames["v", 1].iou == pytest.approx(4 / 5)


def test_a_frame_of_nothing_that_counts_has_no_score(tmp_path: Path) -> None:
    truth = np.zeros((2, 4), np.uint8)
    quality = judged(tmp_path, truth, truth, ("background", "tool"), "default", background=False)
    assert quality.miou is None
    assert quality.frames["v", 1].iou is None


@pytest.fixture(scope="module")
def taught(runs: Runs) -> dict[str, Path]:
    """Runs in which a teacher says the pseudo labels as they are needed."""
    root, settings = runs.supervised.parents[1], ("data.size=32", "data.labelling.every=6", "method.train.steps=2")
    folders = {name: root / "taught" / name for name in ("stitch", "uamt")}
    for name, folder in folders.items():
        train(load_config(root / "data", "demo", [f"method={name}", *settings]), folder, Console(file=io.StringIO()))
    return folders


def pictured(console: Console, *folders: Path) -> tuple[list[str], Gallery]:
    """What the section says of runs, and its pictures."""
    context = Context(read_runs(folders), frames=True, console=console)
    found = pseudo_labels(context)
    gallery = pseudo_pictures(context, found)
    section = pseudo_section(context, found, pictures=gallery is not None)
    assert section is not None
    assert gallery is not None
    return section["said"], gallery


def test_where_a_teacher_said_them_it_is_shown(runs: Runs, taught: dict[str, Path], console: Console) -> None:
    said, gallery = pictured(console, taught["stitch"], taught["uamt"], runs.supervised)
    assert said == [
        "stitch: a teacher said the pseudo labels anew in every step, and none were kept; "
        "shown is what the teacher says at the end of training.",
        "uamt: a teacher said the pseudo labels anew in every step, and none were kept; "
        "shown is what the student, which followed it, says at the end of training.",
        "supervised: no pseudo labels were learnt from; "
        "shown is what the final model says of unlabelled training frames.",
    ]
    assert [panel.title for panel in gallery.panels] == [
        "truth",
        "teacher of stitch, final",
        "uamt, final",
        "supervised, final",
    ]
    (run,) = read_runs([taught["stitch"]])
    assert all(name in run.videos("train") and index not in run.labelled(name) for name, index in gallery.chosen)
    assert gallery.groups[:3] == ["worst", "median", "best"]
    assert all(len(panel.scores) == len(gallery.chosen) for panel in gallery.panels[1:])
    assert all(note.endswith("from a labelled one") for note in gallery.notes.values())


def test_the_pseudo_labels_of_dmt(runs: Runs, tmp_path: Path, console: Console) -> None:
    """Their confidence is written as the logarithm of the doubt, and shown as the model that said them has it."""
    short = ("method.pretrain={steps: 2, batch: 2}", "method.round={steps: 2, batch: 2, labelled: 1}")
    settings = ["data.size=32", "data.labelling.every=6", "method=dmt", "method.rates=[1.0]", *short]
    dmt = tmp_path / "dmt"
    train(load_config(runs.supervised.parents[1] / "data", "demo", settings), dmt, console)
    said, gallery = pictured(console, dmt, runs.pgvcl)
    assert re.match(
        r"dmt: its pseudo labels have [\d.]+ mIoU and [\d.]+ pixel accuracy, on 33 unlabelled training frames", said[0]
    )
    titles = ["truth", "pseudo label of dmt", "pseudo label of pgvcl", "dmt, final", "pgvcl, final"]
    assert [panel.title for panel in gallery.panels] == titles

    network = Run(dmt).model().segmenter.describe()
    said_them = load_model(dmt / "stages" / "2-pretrain-b" / "weights.safetensors", network).eval()
    for (name, index), note in gallery.notes.items():
        image = torch.from_numpy(read_scene(gallery.videos[name], index, (32, 32))).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            sure = said_them(image).softmax(1).amax(1)[0].numpy()
        inside = np.load(dmt / "pseudo" / "labels-1-b" / f"{name}.labels.npy")[0] != IGNORE
        told = re.search(r"mean confidence ([\d.]+) %", note)
        assert told
        half_a_level = 100 * (2 ** (12 / 255) - 1)  # of the doubt: coarse where it is large, as after two steps
        assert float(told[1]) == pytest.approx(100 * sure[inside].mean(), abs=half_a_level)


def test_frames_per_step_count_unlabelled_ones_too(taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    done = read_json(taught["stitch"] / "stages/1-train/done.json")
    write_report([taught["stitch"]], tmp_path / "report.html", frames=False, console=console)
    page = (tmp_path / "report.html").read_text()
    assert done["unlabelled_batch"]
    assert f"<td>{done['steps']}</td><td>{done['batch'] + done['unlabelled_batch']}</td>" in page


def test_pseudo_labels_that_are_gone(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = shutil.copytree(runs.unmasked, tmp_path / "tidied")
    shutil.rmtree(run / "pseudo")
    said, gallery = pictured(console, run)
    assert said == ["tidied: the pseudo labels are not there to be shown; shown is what the final model says."]
    assert [panel.title for panel in gallery.panels] == ["tidied, final"], "nobody knows the truth"
    assert set(map(tuple, gallery.chosen.values())) == {(EVENLY,)}


def test_a_run_on_all_labels_beside_one_on_few(taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    data, full = taught["stitch"].parents[1] / "data", tmp_path / "full"
    settings = ["method=supervised", "data.size=32", "data.labelling.every=1", "method.train.steps=1"]
    train(load_config(data, "demo", settings), full, console)
    said, gallery = pictured(console, full, taught["stitch"])
    assert said[0] == (
        "full: no training frame was without a label; "
        "shown is what the final model says of frames that had none in the other runs."
    )
    assert [panel.title for panel in gallery.panels] == ["truth", "full, final", "teacher of stitch, final"]
    (run,) = read_runs([taught["stitch"]])
    assert not any(index in run.labelled(name) for name, index in gallery.chosen)
    assert all(note.endswith("from a labelled one") for note in gallery.notes.values())
    alone = Context(read_runs([full]), frames=True, console=console)
    assert pseudo_pictures(alone, pseudo_labels(alone)) is None, "no training frame was unlabelled"


def test_masks_of_no_use_are_no_truth(runs: Runs, taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    data = shutil.copytree(runs.supervised.parents[1] / "data", tmp_path / "data")
    copies = [shutil.copytree(run, tmp_path / "runs" / run.name) for run in (taught["stitch"], runs.pgvcl)]
    for run in copies:
        config = run / "config.yaml"
        config.write_text(re.sub(r"(?m)^  root: .*", f"  root: {data}", config.read_text()))
    (facts,) = read_runs(copies[:1])
    video = next(iter(facts.videos("train")))
    not_an_image, too_small, unknown = (data / "masks" / f"{frame_name(video, index)}.png" for index in (1, 2, 3))
    not_an_image.write_text("no image")
    cv2.imwrite(str(too_small), np.zeros((8, 8), np.uint8))
    cv2.imwrite(str(unknown), np.full((64, 64), 99, np.uint8))
    new = next(iter(facts.videos("test")))
    (data / "masks" / f"{frame_name(new, 0)}.png").write_text("no image")
    for run in copies:
        page = write_report([run], tmp_path / "r.html", console=console).read_text()
        assert "best of 30 unlabelled training frames" in page
    assert "on 30 unlabelled training frames with masks" in page


def test_a_run_without_pseudo_labels_has_the_figure(taught: dict[str, Path], tmp_path: Path, console: Console) -> None:
    page = write_report([taught["stitch"]], tmp_path / "r.html", console=console, figures=tmp_path / "figures")
    assert "The pictures are the worst, median and best of 33 unlabelled training frames" in page.read_text()
    assert (tmp_path / "figures" / "pseudo-labels.png").exists()
    context = Context(read_runs([taught["stitch"]]), frames=False, console=console)
    assert pseudo_section(context, {}, pictures=False) is None, "there is nothing but pictures"
