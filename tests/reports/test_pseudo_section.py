"""Pseudo labels are judged by the dataset's protocol, and finished runs have pictures of unlabelled frames."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from tiny_runs import Runs

from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.labelling import Labelling, frame_name
from suture.evaluation.scoring import protocol_of, scores
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
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
from suture.reports.report_context import ReportContext

Open = Callable[..., ReportContext]
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
    frame = quality.frames["v", 1]
    assert (frame.distance, frame.confidence) == (1, 1.0)
    assert frame.iou == pytest.approx(expected["miou_frames"] or np.nan, nan_ok=True)
    return quality


def test_class_that_the_protocol_leaves_out_is_not_in_the_mean(tmp_path: Path) -> None:
    truth = np.repeat(np.uint8([[0], [1]]), 50, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = 2
    names = ("void", "vocal folds", "pathology")
    quality = judged(tmp_path, truth, pseudo, names, "vocalfolds-patients")
    assert quality.miou == pytest.approx((0.98 + 1) / 2)
    assert quality.pa == pytest.approx(0.99)


@pytest.mark.parametrize(("tool", "miou"), [(1, 4 / 5), (0, None)])
def test_background_is_left_out_as_in_the_run(tmp_path: Path, tool: int, miou: float | None) -> None:
    truth = np.repeat(np.uint8([[0], [tool]]), 4, axis=1)
    pseudo = truth.copy()
    pseudo[0, 0] = tool
    quality = judged(tmp_path, truth, pseudo, ("background", "tool"), "default", background=False)
    assert quality.miou == (miou and pytest.approx(miou))


def titles(gallery: Gallery | None) -> list[str]:
    assert gallery is not None
    return [panel.title for panel in gallery.panels]


def test_runs_with_and_without_pseudo_labels(runs: Runs, context_of: Open) -> None:
    context = context_of(runs.pgvcl, runs.supervised)
    qualities = pseudo_qualities(context)
    section, gallery = pseudo_section(context, qualities), pseudo_pictures(context, qualities)
    assert section is not None
    assert [row[1].text for row in section["table"].groups[0]] == ["33"]
    assert titles(gallery) == ["truth", "pseudo label of pgvcl", "pgvcl", "supervised"]
    assert gallery is not None
    assert all(index not in context.first.labelled[name] for name, index in gallery.chosen)
    assert list(gallery.groups)[:3] == ["worst", "median", "best"]
    assert all(len(panel.scores) == len(gallery.chosen) for panel in gallery.panels[1:])
    assert all(note.endswith("from a labelled one") for note in gallery.notes.values())


def test_removed_pseudo_labels(runs: Runs, tmp_path: Path, context_of: Open) -> None:
    run = shutil.copytree(runs.unmasked, tmp_path / "tidied")
    shutil.rmtree(run / "pseudo")
    context = context_of(run)
    assert pseudo_section(context, pseudo_qualities(context)) is None
    gallery = pseudo_pictures(context, {})
    assert titles(gallery) == ["tidied"], "the frames have no truth"
    assert gallery is not None
    assert set(map(tuple, gallery.chosen.values())) == {(EVENLY,)}


def test_pseudo_labels_of_other_frames_are_left_out(runs: Runs, tmp_path: Path, context_of: Open) -> None:
    run = shutil.copytree(runs.pgvcl, tmp_path / "run")
    file = next((run / "pseudo").glob("case02*.labels.npy"))
    np.save(file, np.load(file)[:-1])
    context = context_of(run)
    assert pseudo_qualities(context) == {}
    assert context.remarks == ["The pseudo labels of run do not fit the training frames and are left out."]


def test_invalid_masks_are_no_truth(runs: Runs, tmp_path: Path, context_of: Open) -> None:
    data = shutil.copytree(runs.data, tmp_path / "data")
    run = shutil.copytree(runs.pgvcl, tmp_path / "run")
    config = run / "config.yaml"
    config.write_text(re.sub(r"(?m)^  root: .*", f"  root: {data}", config.read_text()))
    no_image, too_small, unknown = (data / "masks" / f"{frame_name('case02', i)}.png" for i in (1, 2, 3))
    no_image.write_text("no image")
    cv2.imwrite(str(too_small), np.zeros((8, 8), np.uint8))
    cv2.imwrite(str(unknown), np.full((64, 64), 99, np.uint8))
    context = context_of(run)
    qualities = pseudo_qualities(context)
    gallery = pseudo_pictures(context, qualities)
    assert sum(np.isfinite(frame.iou) for frame in qualities[0].frames.values()) == 30
    assert gallery is not None
    assert gallery.candidates == 30
