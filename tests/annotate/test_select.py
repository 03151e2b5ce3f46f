"""The frames to label are written with names that lead back to them, and nothing is left half-done."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from suture.annotate.select import select
from suture.annotate.tools import TOOLS
from suture.core.errors import UserError
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.formats import open_export
from suture.data.images import MaskFile, read_image
from suture.data.labelling import Labelling, frame_name, from_list, read_lines
from suture.data.view import View
from suture.prediction.predictor import Prediction


def write_video(folder: Path, shots: list[int], seed: int) -> list[Path]:
    """Frames of several shots: each a still texture under a little noise."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    files: list[Path] = []
    for length in shots:
        texture = cv2.resize(generator.integers(20, 230, (6, 6, 3)).astype(np.uint8), (64, 48))
        for _ in range(length):
            noise = generator.integers(0, 12, texture.shape).astype(np.uint8)
            files.append(folder / f"{len(files):04d}.png")
            cv2.imwrite(str(files[-1]), texture + noise)
    return files


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Two videos of 20 + 6 + 14 and of 30 frames; the first ten of the second are excluded. There are no masks."""
    videos = []
    for name, shots, excluded in (("case 1", [20, 6, 14], range(0)), ("case2", [30], range(10))):
        files = write_video(tmp_path / "videos" / name, shots, seed=len(name))
        frames = [Frame(index, index, image=file) for index, file in enumerate(files)]
        videos.append(Video(name, name, frames, excluded=frozenset(excluded)))
    return Dataset("mine", tmp_path / "videos", ClassTable(("a",), ((0, 0, 0),), {0: 0}), videos)


def with_masks(dataset: Dataset, labelled: Labelling, folder: Path) -> Dataset:
    """The dataset with masks, which are not read, for these frames."""
    mask = MaskFile(folder / "mask.png")
    videos = [
        replace(video, frames=[replace(f, mask=mask) if f.index in labelled[video.id] else f for f in video.frames])
        for video in dataset
    ]
    return replace(dataset, videos=videos)


def test_every_takes_equidistant_frames_and_the_shots_they_miss(dataset: Dataset, tmp_path: Path) -> None:
    chosen = select(dataset, tmp_path / "out", every=12, progress=False)
    assert chosen == Labelling({"case 1": (0, 12, 24, 36), "case2": (12, 24)})
    chosen = select(dataset, tmp_path / "few", every=30, progress=False)
    assert chosen == Labelling({"case 1": (0, 23, 30), "case2": (20,)})  # the frame at 0 of case2 is excluded
    thinned = replace(dataset, videos=[replace(video, take_every=4) for video in dataset])
    chosen = select(thinned, tmp_path / "thinned", every=10, progress=False)  # the next frames that take part
    assert chosen == Labelling({"case 1": (0, 12, 20, 32), "case2": (12, 20)})


@pytest.mark.parametrize("count", [1, 2, 4, 5, 20, 60, 1000])
def test_a_budget_reaches_every_shot_and_no_excluded_frame(dataset: Dataset, tmp_path: Path, count: int) -> None:
    chosen = select(dataset, tmp_path / "out", budget=count, progress=False)
    assert chosen.count == min(count, 60)
    assert not set(chosen["case2"]) & set(range(10))
    if count >= 4:
        for name, shot in (("case 1", range(20)), ("case 1", range(20, 26)), ("case 1", range(26, 40))):
            assert set(chosen[name]) & set(shot)


def test_a_second_selection_fills_the_gaps_of_the_first(dataset: Dataset, tmp_path: Path) -> None:
    first = select(dataset, tmp_path / "first", budget=4, progress=False)
    labelled = with_masks(dataset, first, tmp_path)
    second = select(labelled, tmp_path / "second", budget=4, progress=False)
    assert first == Labelling({"case 1": (10, 23, 33), "case2": (20,)})
    assert second == Labelling({"case 1": (5, 15, 29), "case2": (15,)})
    every = select(labelled, tmp_path / "every", every=10, progress=False)
    assert every == Labelling({"case 1": (0, 20, 30), "case2": (10,)})  # 10 and 20 have masks


def test_the_frames_of_a_list(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "worst.txt").write_text("case 1 7\ncase2__frame_000013\ncase2 3  # excluded\n")
    labelled = with_masks(dataset, Labelling({"case 1": (7,)}), tmp_path)
    chosen = select(labelled, tmp_path / "out", listed=tmp_path / "worst.txt", progress=False)
    assert chosen == Labelling({"case 1": (7,), "case2": (13,)})
    assert len(list((tmp_path / "out").glob("*.png"))) == 2
    (tmp_path / "worst.txt").write_text("# none yet\n")
    with pytest.raises(UserError, match=r"worst\.txt names no frame"):
        select(labelled, tmp_path / "none", listed=tmp_path / "worst.txt", progress=False)


def test_nothing_is_left_to_label(dataset: Dataset, tmp_path: Path) -> None:
    some = select(dataset, tmp_path / "some", every=10, progress=False)
    with pytest.raises(UserError, match="--every 10: all these frames have a mask already"):
        select(with_masks(dataset, some, tmp_path), tmp_path / "again", every=10, progress=False)
    all_of_it = select(dataset, tmp_path / "all", budget=1000, progress=False)
    with pytest.raises(UserError, match="every frame is excluded or has a mask"):
        select(with_masks(dataset, all_of_it, tmp_path), tmp_path / "again", budget=1, progress=False)


def test_a_ratio_is_a_share_of_the_usable_frames(dataset: Dataset, tmp_path: Path) -> None:
    assert select(dataset, tmp_path / "out", ratio=0.1, progress=False).count == 6
    assert select(dataset, tmp_path / "one", ratio=0.001, progress=False).count == 1


def test_files_lead_back_to_their_frames(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    chosen = select(dataset, out, every=10, progress=False)
    assert from_list(out / "frames.txt", dataset) == chosen
    files = sorted(out.glob("*.png"))
    frames = [frame for file in files for _, *frame in read_lines(file.name, "")]
    assert [tuple(frame) for frame in frames] == sorted(chosen)
    assert (out / f"{frame_name('case 1', 20)}.png").is_file()
    for file, (video, index) in zip(files, frames, strict=True):
        assert (read_image(file) == dataset[video].read(index)).all()
    assert {file.name for file in out.iterdir()} == {file.name for file in files} | {"frames.txt"}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_nothing_is_overwritten_without_force(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first = select(dataset, out, budget=4, progress=False)  # an empty folder is no loss
    (out / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="--force"):
        select(dataset, out, budget=8, progress=False)
    assert from_list(out / "frames.txt", dataset) == first
    second = select(dataset, out, budget=8, force=True, progress=False)
    assert from_list(out / "frames.txt", dataset) == second
    assert (out / "note.txt").read_text() == "mine"


def test_a_broken_frame_leaves_nothing_behind(dataset: Dataset, tmp_path: Path) -> None:
    broken = dataset["case2"].frames[15].image
    assert broken is not None
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(UserError, match=r"0015\.png"):
        select(dataset, tmp_path / "out", budget=5, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


def test_a_file_in_the_way_is_named(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(UserError, match="file") as caught:
            select(dataset, out, budget=5, progress=False)
        assert "/." not in str(caught.value), "nobody knows the temporary folder"


@pytest.mark.parametrize(
    "choice", [{}, {"every": 3, "budget": 4}, {"every": 0}, {"budget": -1}, {"ratio": 0.0}, {"ratio": 1.2}]
)
def test_one_good_choice_is_needed(dataset: Dataset, tmp_path: Path, choice: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"--(every|budget|ratio)"):
        select(dataset, tmp_path / "out", **choice, progress=False)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_frames_do_not_go_into_a_dataset(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/dataset.yaml").write_text("masks: masks\n")
    for folder in (tmp_path / "other/label", dataset.root / "label"):
        with pytest.raises(UserError, match=r"would (become|count as) "):
            select(dataset, folder, every=5)


class CentrePredictor:
    """Predicts class 1 in the left half of the view and class 0 in the right."""

    classes = ClassTable(("a", "b"), ((0, 0, 0), (9, 9, 9)), {0: 0, 1: 1})

    def predict(self, frame: np.ndarray, view: View) -> list[Prediction]:
        mask = np.zeros(frame.shape[:2], np.uint8)
        mask[:, : frame.shape[1] // 2] = 1
        return [Prediction(mask, 0.9, 0.25)]


@pytest.mark.parametrize("tool", TOOLS)
def test_files_for_a_tool_hold_frames_labels_drafts_and_steps(dataset: Dataset, tmp_path: Path, tool: str) -> None:
    predictor: Any = CentrePredictor()
    select(dataset, tmp_path / "out", budget=2, tool=tool, predictor=predictor, progress=False)
    images = sorted(path.name for path in (tmp_path / "out/images").iterdir())
    assert images == ["case 1__frame_000010.png", "case2__frame_000020.png"]
    assert "labels import" in (tmp_path / "out/README.md").read_text()
    drafts = {"cvat": "annotations.xml", "labelstudio": "tasks.json", "coco": "annotations.json", "png": "masks"}
    if tool != "labelstudio":  # which has predictions, no annotations
        export = open_export(tmp_path / "out" / drafts[tool])
        mask = export.mask("case2__frame_000020", {"a": 0, "b": 1}, None).read(False)
        assert mask[:, :32].all()
        assert not mask[:, 32:].any()
    without = select(dataset, tmp_path / "plain", budget=2, tool=tool, progress=False)
    assert without.count == 2


def test_frames_that_look_different_are_chosen_by_appearance(dataset: Dataset, tmp_path: Path) -> None:
    chosen = select(dataset, tmp_path / "out", budget=4, by="appearance", progress=False)
    shots = [range(20), range(20, 26), range(26, 40)]
    assert [len({*chosen["case 1"]} & {*shot}) for shot in shots] == [1, 1, 1]
    assert len(chosen["case2"]) == 1
