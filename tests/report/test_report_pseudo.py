"""Pseudo labels are judged by the dataset's protocol, as the run's own scores are."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.labelling import Labelling
from suture.evaluation.evaluate import scores
from suture.methods.pseudo import PseudoLabels, PseudoSettings
from suture.report.pictures import Judge
from suture.report.pseudo import PseudoQuality, pseudo_quality

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
    judge = Judge(dataset, background)
    scorer = judge.scorer()
    scorer.add("v", 1, pseudo, truth)
    quality = pseudo_quality(STAGE, root / "run", judge, Labelling({"v": [0]}))
    expected = scores(dataset, scorer, background)["overall"]
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
