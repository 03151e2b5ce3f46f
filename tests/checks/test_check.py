"""`suture check`: a healthy dataset has no problems, and each kind of problem is found, counted, placed and mended."""

import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from suture.checks.check import (
    IGNORED,
    CheckReport,
    check,
    require_classes_to_learn,
    require_labels,
    validate_masks,
)
from suture.checks.draft import write_draft
from suture.checks.measurements import between_share, in_parallel, is_combed, painted_levels
from suture.checks.problems import Problem
from suture.core.errors import UserError
from suture.data import messages as mends
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.datasets import load_dataset

WIDTH, HEIGHT, FRAMES = 64, 48, 6
CASES = ("ann", "bob", "cid")
CLASSES: list[dict[str, Any]] = [
    {"name": "tissue", "value": 0},
    {"name": "shaft", "value": 1},
    {"name": "needle", "value": 2},
]


def picture(video: str, index: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """A frame of smooth blobs that drift and flicker a little, another scene for each video."""
    scene = np.random.default_rng(sum(map(ord, video)))
    blobs = cv2.resize(
        scene.integers(40, 230, (9, 24, 3), np.uint8), (4 * width, height), interpolation=cv2.INTER_CUBIC
    )
    noise = np.random.default_rng(index).normal(0, 3, (height, width, 3))
    return np.clip(blobs[:, 3 * index : 3 * index + width] + noise, 0, 255).astype(np.uint8)


def ids(index: int) -> np.ndarray:
    """Ids 0, 1 and 2 in plain shapes."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:30, 5 + index : 25 + index] = 1
    mask[20:40, 40:52] = 2
    return mask


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels[..., ::-1] if pixels.ndim == 3 else pixels)


def describe(root: Path, **changes: Any) -> None:
    """Write dataset.yaml."""
    content: dict[str, Any] = {
        "name": "tiny",
        "videos": "videos",
        "masks": "masks",
        "classes": CLASSES,
        "split": {"train": ["ann"], "val": ["bob"], "test": ["cid"]},
    }
    (root / "dataset.yaml").write_text(yaml.safe_dump(content | changes))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A healthy dataset: three cases of six frames, each with a mask."""
    for case in CASES:
        for index in range(FRAMES):
            write(tmp_path / f"videos/{case}/{index:03}.png", picture(case, index))
            write(tmp_path / f"masks/{case}/{index:03}.png", ids(index))
    describe(tmp_path)
    return tmp_path


def find(report: CheckReport, code: str) -> Problem:
    found = [problem for problem in report.problems if problem.code == code]
    assert len(found) == 1, [problem.code for problem in report.problems]
    assert found[0].fix
    return found[0]


def run(root: Path) -> CheckReport:
    return check(root, progress=False, workers=1)


def only(root: Path, code: str) -> Problem:
    """The one problem that there should be."""
    report = run(root)
    assert [problem.code for problem in report.problems] == [code]
    return report.problems[0]


def masks_of(root: Path) -> list[Path]:
    return sorted((root / "masks").rglob("*.png"))


def test_a_healthy_dataset_has_no_problems(root: Path) -> None:
    early: list[CheckReport] = []
    report = check(root, progress=False, workers=1, on_quick=early.append)
    assert report.problems == [] == early[0].problems
    assert not report.fatal
    assert report.complete
    assert not early[0].complete
    summary = report.summary
    assert (summary.cases, len(summary.videos), summary.frames, summary.labelled, summary.shots) == (3, 3, 18, 18, 3)
    count = report.class_table["shaft"]["train"]
    assert (count.pixels, count.frames, count.videos, count.cases) == (6 * 400, 6, 1, 1)
    assert report.class_table[IGNORED]["train"].pixels == 0


def test_the_quick_pass_alone_reads_a_few_frames_only(root: Path) -> None:
    write(root / "masks/ann/001.png", np.full((HEIGHT, WIDTH), 9, np.uint8))
    report = check(root, full=False)
    assert not report.complete
    assert report.summary.shots is None
    assert report.read == 15 < report.summary.frames
    shown = StringIO()
    report.print(Console(file=shown))
    assert "A first look, at 15 of 18 frames; what all of them hold follows." in shown.getvalue()


@pytest.fixture
def misnamed(root: Path) -> Path:
    """The official split turned round."""
    for case, name in (("ann", "test_1"), ("bob", "val"), ("cid", "train")):
        (root / "videos" / case).rename(root / "videos" / name)
        (root / "masks" / case).rename(root / "masks" / name)
    describe(root, split={"train": ["test_1", "val"], "test": ["train"]})
    return root


def test_a_name_that_says_another_split(misnamed: Path) -> None:
    problem = only(misnamed, "misnamed-split")
    assert (problem.severity, problem.count) == ("warning", 2)
    assert problem.places == ("test_1 in train", "train in test")
    assert problem.what == "2 videos in another split than the name, the folder or a list says"
    describe(misnamed, split={"train": ["train"], "val": ["val"], "test": ["test_1"]})
    assert run(misnamed).problems == []


def test_the_name_of_a_case_counts_before_those_of_its_videos(misnamed: Path) -> None:
    cases = {"train_of_fold_2": ["test_1"], "ann": ["train"]}
    describe(misnamed, cases=cases, split={"train": ["train_of_fold_2", "val"], "test": ["ann"]})
    assert only(misnamed, "misnamed-split").places == ("train in test",)


def test_one_of_the_videos_of_a_case_may_say_it(misnamed: Path) -> None:
    describe(misnamed, cases={"ann": ["test_1", "train"]}, split={"train": ["ann"], "test": ["val"]})
    assert only(misnamed, "misnamed-split").places == ("test_1 in train", "val in test")


def test_unknown_ids(root: Path) -> None:
    for path in masks_of(root)[4:6]:
        mask = ids(0)
        mask[:2, :5] = 7
        write(path, mask)
    problem = only(root, "unknown-value")
    assert (problem.severity, problem.count, problem.first) == ("fatal", 2, "masks/ann/004.png")
    assert "7 (20 pixels)" in problem.what


def test_a_missing_video_is_a_finding_beside_the_others(root: Path) -> None:
    describe(root, split={"train": ["ann", "dan"], "val": ["bob"], "test": ["cid"]})
    write(masks_of(root)[0], np.full((HEIGHT, WIDTH), 7, np.uint8))
    report = run(root)
    assert [problem.code for problem in report.problems] == ["missing-video", "unknown-value"]
    problem = find(report, "missing-video")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.first == "dataset.yaml: split.train names 'dan', which is no case", "ann is another"


def test_labels_that_have_a_class_by_their_ids_alone_are_told(root: Path) -> None:
    """COCO counts its categories, and whoever painted the images counted theirs: here the other way round."""
    for mask in (root / "masks/cid").iterdir():
        mask.unlink()
    images = [{"id": n, "file_name": f"cid/{n:03}.png", "width": WIDTH, "height": HEIGHT} for n in range(FRAMES)]
    square = [[2, 2, 30, 2, 30, 30, 2, 30]]
    shapes = [{"image_id": n, "category_id": 1 + n % 2, "segmentation": square} for n in range(FRAMES)]
    labels = [{"id": 1, "name": "Nadel"}, {"id": 2, "name": "Schaft"}]
    (root / "masks/round2.json").write_text(json.dumps({"images": images, "categories": labels, "annotations": shapes}))
    describe(root, unpainted="tissue")
    problem = only(root, "label-by-id")
    assert problem.severity == "warning"
    assert problem.what == (
        "2 labels taken for a class because the id in COCO is that class's value in mask images: Nadel (id 1) as "
        "shaft and Schaft (id 2) as needle"
    )
    question = "to which of these classes do the labels of the annotation tool belong (Nadel and Schaft)?"
    assert question in write_draft(root, force=True).read_text()
    answered = [{"name": "shaft", "value": [1, "Schaft"]}, {"name": "needle", "value": [2, "Nadel"]}]
    describe(root, unpainted="tissue", classes=[CLASSES[0], *answered])
    report = run(root)
    assert not report.problems
    assert report.class_table["needle"]["test"].frames == 3
    assert question not in write_draft(root, force=True).read_text()
    called_so = [{"name": "Schaft", "value": 1}, {"name": "Nadel", "value": 2}]  # names say it, whatever the ids
    describe(root, unpainted="tissue", classes=[CLASSES[0], *called_so])
    report = run(root)
    assert not report.problems
    assert report.class_table["Nadel"]["test"].frames == 3
    assert "labels of the annotation tool" not in write_draft(root, force=True).read_text()


def test_255_is_asked_about(root: Path) -> None:
    mask = ids(0)
    mask[0] = 255
    write(masks_of(root)[0], mask)
    assert "ignore: true" in only(root, "unknown-value").fix


def test_unknown_colours(root: Path) -> None:
    paint(root)
    mask = PALETTE[ids(0)]
    mask[:3, :4] = (12, 200, 77)
    write(masks_of(root)[7], mask)
    problem = only(root, "unknown-value")
    assert (problem.count, problem.first) == (1, "masks/bob/001.png")
    assert "12,200,77 (12 pixels)" in problem.what


def test_a_colour_that_is_almost_a_classs_is_told_as_such(root: Path) -> None:
    paint(root)
    mask = PALETTE[ids(0)]
    mask[:3, :4] = (0, 250, 3)
    write(masks_of(root)[7], mask)
    problem = only(root, "unknown-value")
    assert "0,250,3 (12 pixels, almost that of shaft)" in problem.what
    assert problem.fix == mends.DRIFTED
    mask[:2, :2] = (12, 200, 77)
    write(masks_of(root)[8], mask)
    assert only(root, "unknown-value").fix == f"{mends.DRIFTED}; others: {mends.UNKNOWN}"


PALETTE = np.array([(20, 20, 20), (0, 255, 0), (255, 60, 0)], np.uint8)


def paint(root: Path, change: Any = lambda colors: colors, suffix: str = ".png", colors: bool = True) -> None:
    """Turn all masks to colours, changed by a function, and say so in dataset.yaml."""
    for path in masks_of(root):
        mask = change(PALETTE[ids(int(path.stem))])
        path.unlink()
        write(path.with_suffix(suffix), mask)
    if colors:
        describe(root, classes=[c | {"value": PALETTE[c["value"]].tolist()} for c in CLASSES])


def test_colours_are_fine_where_the_table_has_colours(root: Path) -> None:
    paint(root)
    assert run(root).problems == []


def test_anti_aliased_masks(root: Path) -> None:
    paint(root, lambda mask: cv2.resize(mask[::2, ::2], (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR))
    problem = only(root, "smoothed-mask")
    assert (problem.severity, problem.count) == ("fatal", 18)


def test_smoothly_resized_ids_are_found_although_every_id_is_known(root: Path) -> None:
    path = masks_of(root)[0]
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:30, 10:30] = 2
    write(path, cv2.resize(mask[::2, ::2], (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR))
    problem = only(root, "smoothed-mask")
    assert problem.first == "masks/ann/000.png"
    assert problem.what.startswith("1 mask with smooth edges")


def test_jpeg_masks(root: Path) -> None:
    paint(root, suffix=".jpg")
    assert only(root, "jpeg-mask").count == 18


def test_jpeg_masks_saved_as_png_afterwards(root: Path) -> None:
    def compress(mask: np.ndarray) -> np.ndarray:
        coded = cv2.imencode(".jpg", mask, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
        return np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR))

    paint(root, compress)
    assert only(root, "jpeg-mask").severity == "fatal"


def test_ids_that_start_at_one(root: Path) -> None:
    for path in masks_of(root):
        write(path, ids(int(path.stem)) + 1)
    problem = find(run(root), "ids-from-one")
    assert (problem.severity, problem.count) == ("fatal", 18)
    assert "1 to 3" in problem.what


def test_colours_where_ids_are_meant(root: Path) -> None:
    paint(root, colors=False)
    problem = find(run(root), "colours-for-ids")
    assert (problem.severity, problem.count) == ("fatal", 18)


def test_ids_where_colours_are_meant(root: Path) -> None:
    describe(root, classes=[c | {"value": PALETTE[c["value"]].tolist()} for c in CLASSES], unpainted="tissue")
    assert find(run(root), "ids-for-colours").severity == "fatal"


@pytest.mark.parametrize("unpainted", [None, "ignore", "background", "shaft"])
def test_unpainted_pixels_must_be_explained(root: Path, unpainted: str | None) -> None:
    describe(root, classes=CLASSES[1:], **({"unpainted": unpainted} if unpainted else {}))
    if unpainted is None:
        problem = only(root, "unpainted")
        assert (problem.severity, problem.count, problem.first) == ("fatal", 18, "masks/ann/000.png")
    else:
        assert run(root).problems == []


def test_a_mask_of_another_size(root: Path) -> None:
    write(masks_of(root)[3], ids(0)[:, :-8])
    problem = only(root, "mask-size")
    assert (problem.severity, problem.count, problem.first) == ("fatal", 1, "masks/ann/003.png")
    assert "56×48 on a frame of 64×48" in problem.what
    assert "scale the points of shapes" in problem.fix


def test_files_that_do_not_decode_are_collected(root: Path) -> None:
    for path in (root / "videos/bob/002.png", root / "videos/bob/003.png", root / "masks/cid/005.png"):
        path.write_bytes(path.read_bytes()[:-200])
    (root / "masks/cid/004.png").write_bytes(b"")
    report = run(root)
    assert report.fatal
    assert (find(report, "bad-frame").count, find(report, "bad-frame").first) == (2, "videos/bob/002.png")
    assert (find(report, "bad-mask").count, find(report, "bad-mask").first) == (2, "masks/cid/004.png")


def test_a_header_that_claims_an_absurd_size_is_a_frame_that_does_not_decode(root: Path) -> None:
    content = bytearray((root / "videos/ann/000.png").read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    (root / "videos/ann/000.png").write_bytes(content)
    assert only(root, "bad-frame").first == "videos/ann/000.png"


def test_a_mask_without_a_frame(root: Path) -> None:
    write(root / "masks/ann/999.png", ids(0))
    problem = only(root, "mask-without-frame")
    assert (problem.severity, problem.count) == ("warning", 1)
    assert problem.first.startswith("masks")
    assert "999" in problem.first


def test_masks_of_which_none_fits_a_frame(root: Path) -> None:
    (root / "masks").rename(root / "old")
    write(root / "masks/ann/999.png", ids(0))
    problem = only(root, "no-mask-fits")
    assert (problem.severity, problem.count, problem.first) == ("fatal", 1, "masks/ann/999.png")
    with pytest.raises(UserError, match=r"1 mask without a frame.*masks/ann/999\.png.*name each mask"):
        require_labels(load_dataset(root))


def test_masks_of_several_endings_of_which_none_fits_a_frame(root: Path) -> None:
    """One ending is left out to find the frame; of two kinds, nobody knows whether they mean the same."""
    (root / "masks").rename(root / "old")
    for index in range(3):
        write(root / f"masks/ann/{index:03}_{'color_mask' if index else 'label'}.png", ids(0))
    problem = only(root, "no-mask-fits")
    assert problem.what == "3 masks without a frame, and none with one; names end in _label (1) and _color_mask (2)"
    assert problem.fix == f"{mends.ENDS}, or {mends.NAME}"
    (root / "masks/ann/000_label.png").unlink()
    assert load_dataset(root)["ann"].with_mask == [1, 2]


def test_masks_numbered_past_the_end_of_a_video(root: Path) -> None:
    encode(root / "videos/eva.mp4", [picture("eva", index) for index in range(10)])
    for index in (0, 6, 12, 18):
        write(root / f"masks/eva/{index:09}.png", ids(0))
    assert find(run(root), "mask-past-end").severity == "warning"  # it is in no split: nobody reads it
    load_dataset(root).require_clear_masks()
    describe(root, split={"train": ["ann", "eva"], "val": ["bob"], "test": ["cid"]})
    problem = only(root, "mask-past-end")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.what == "1 video with masks past the end, whose other masks may be on wrong frames too"
    assert problem.first == "masks up to frame 18, but eva has 10 frames, 0–9 (another frame rate?)"
    for index in (0, 6, 12):
        (root / f"masks/eva/{index:09}.png").unlink()
    problem = only(root, "mask-without-frame")
    assert (problem.severity, problem.first) == ("warning", "masks/eva/000000018.png (eva has 10 frames, 0–9)")


def test_a_name_that_fits_two_videos_hides_nothing_else(root: Path) -> None:
    write(root / "masks/003.png", ids(0))
    write(root / "masks/bob/001.png", ids(0)[:, :-8])
    report = run(root)
    assert {problem.code for problem in report.problems} == {"doubtful-mask", "mask-size"}
    problem = find(report, "doubtful-mask")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.first == "masks/003.png fits ann (frame 3), bob (frame 3) and cid (frame 3)"


def test_a_second_mask_of_a_frame_hides_nothing_else(root: Path) -> None:
    write(root / "masks/ann__frame_000002.png", ids(0))
    describe(root, classes=CLASSES[1:])
    report = run(root)
    assert {problem.code for problem in report.problems} == {"doubtful-mask", "unpainted"}
    problem = find(report, "doubtful-mask")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.first == "masks/ann/002.png fits ann (frame 2), which has the mask masks/ann__frame_000002.png"
    assert problem.fix.endswith("and keep one mask of each frame")


def test_a_class_that_never_occurs(root: Path) -> None:
    describe(root, classes=[*CLASSES, {"name": "clip", "value": 3}])
    problem = only(root, "class-never")
    assert (problem.severity, problem.count, problem.first) == ("warning", 1, "")
    assert problem.what == "1 class without a single pixel: clip"


def test_a_class_outside_the_view(root: Path) -> None:
    describe(root, view=[0, 0, 40, HEIGHT])
    problem = only(root, "class-outside-view")
    assert (problem.severity, problem.count, problem.fix) == ("warning", 1, mends.VIEW)
    assert problem.what == (
        "1 class with pixels outside the view only, where nothing is learnt or scored: needle (4,320 pixels)"
    )


def test_masks_of_ignored_pixels_alone_are_fatal(root: Path) -> None:
    """As where nothing was painted: a training would learn nothing, without a word."""
    describe(root, classes=CLASSES[1:], unpainted="ignore")
    for path in masks_of(root):
        write(path, np.zeros((HEIGHT, WIDTH), np.uint8))
    problem = only(root, "all-ignored")
    assert (problem.severity, problem.fix) == ("fatal", mends.IGNORED)
    write(root / "masks/ann/000.png", ids(0))
    assert not run(root).fatal


def test_a_single_class_in_train_is_fatal(root: Path) -> None:
    """As binary masks of 0 and 255 whose 255 is ignored: the scores would be perfect, of nothing."""
    for path in masks_of(root):
        write(path, np.where(ids(int(path.stem)) == 1, 255, 0).astype(np.uint8))
    describe(root, classes=[{"name": "void", "value": 255, "ignore": True}], unpainted="background")
    problem = only(root, "one-class")
    assert (problem.severity, problem.fix) == ("fatal", mends.ONE_CLASS)
    assert problem.what == "The labelled training frames show no class but background: there is nothing to tell apart"
    describe(root, classes=[{"name": "tool", "value": 255}], unpainted="background")
    assert run(root).problems == []
    describe(root, classes=[{"name": "tool", "value": 255}])
    assert only(root, "unpainted").severity == "fatal"  # of which the single class is a consequence


def test_classes_in_one_split_only(root: Path) -> None:
    for path in masks_of(root):
        mask = ids(int(path.stem))
        absent = 1 if path.parent.name == "ann" else 2
        write(path, np.where(mask == absent, 0, mask).astype(np.uint8))
    report = run(root)
    assert find(report, "class-not-in-train").what == "1 class in test or val but not in train: shaft"
    assert find(report, "class-not-in-train").severity == "warning"
    assert find(report, "class-not-scored").what == "1 class in train but not in test: needle"
    assert find(report, "class-not-scored").severity == "note"


def test_a_class_that_test_lacks_is_told_also_where_val_has_it(root: Path) -> None:
    for path in (root / "masks/cid").iterdir():
        mask = ids(int(path.stem))
        write(path, np.where(mask == 2, 0, mask).astype(np.uint8))
    assert only(root, "class-not-scored").what == "1 class in train but not in test: needle"
    describe(root, split={"train": ["ann"], "val": ["cid"]})
    problem = find(run(root), "class-not-scored")
    assert problem.what == "1 class in train but not in val: needle"
    assert problem.fix.endswith("move one of them into val")


def test_a_case_in_two_splits(root: Path) -> None:
    dataset = load_dataset(root)
    for video in dataset:
        video.case = "ann"
    problem = find(check(dataset, progress=False, workers=1), "divided-case")
    assert (problem.severity, problem.count) == ("fatal", 1)
    dataset.divides_cases = True
    report = check(dataset, progress=False, workers=1)
    assert find(report, "divided-case").severity == "warning"
    assert not report.fatal


def test_frames_that_lie_in_two_splits(root: Path) -> None:
    write(root / "videos/cid/004.png", picture("ann", 2))
    problem = only(root, "duplicate-frame")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.first == "videos/ann/002.png = videos/cid/004.png"


def test_frames_that_look_the_same_in_two_splits(root: Path) -> None:
    again = np.clip(
        picture("ann", 2).astype(int) + np.random.default_rng(7).integers(-2, 3, (HEIGHT, WIDTH, 3)), 0, 255
    )
    write(root / "videos/cid/004.png", again.astype(np.uint8))
    problem = only(root, "similar-frame")
    assert (problem.severity, problem.count) == ("warning", 1)


def replace_frames(root: Path, video: str, pictures: Iterable[np.ndarray]) -> None:
    for index, pixels in enumerate(pictures):
        write(root / f"videos/{video}/{index:03}.png", pixels)


def test_black_frames(root: Path) -> None:
    replace_frames(
        root, "bob", [picture("bob", i) if i not in (2, 3, 5) else picture("bob", i) // 40 for i in range(6)]
    )
    problem = only(root, "black")
    assert (problem.severity, problem.count) == ("warning", 3)
    assert problem.places == ("bob frames 2–3", "bob frame 5")


def test_a_cameras_12_bits_in_16(root: Path) -> None:
    """They are no black frames to leave out, and a training on them would learn from nothing."""
    write(root / "videos/ann/002.png", np.zeros((HEIGHT, WIDTH, 3), np.uint16))  # of full 16 bits, and black indeed
    # Of bob's, the first is black indeed: it hides nothing.
    replace_frames(root, "bob", [picture("bob", i).astype(np.uint16) * (16 if i else 0) for i in range(6)])
    report = run(root)
    problem = find(report, "few-bits")
    assert (problem.severity, problem.places) == ("fatal", ("videos/bob/000.png",))
    assert problem.fix.endswith("divide their values by 16")
    assert find(report, "black").places == ("ann frame 2",)


def test_excluded_frames_are_not_complained_about(root: Path) -> None:
    replace_frames(root, "bob", [picture("bob", i) // (40 if i == 2 else 1) for i in range(6)])
    (root / "exclude.csv").write_text("video,first,last,reason\nbob,2,2,no signal\n")
    describe(root, exclude="exclude.csv")
    report = run(root)
    assert [problem.code for problem in report.problems] == ["mask-on-excluded"]
    assert report.summary.videos[1].excluded == 1
    (root / report.problems[0].places[0]).unlink()
    assert run(root).problems == []


def test_a_video_with_every_frame_excluded(root: Path) -> None:
    (root / "exclude.csv").write_text("video,first,last,reason\nbob,0,5,no signal\n")
    describe(root, exclude="exclude.csv")
    assert find(run(root), "all-excluded").first == "bob"


def test_frozen_stretches(root: Path) -> None:
    replace_frames(root, "bob", [picture("bob", min(i, 4)) for i in range(12)])
    problem = only(root, "frozen")
    assert (problem.severity, problem.count, problem.first) == ("warning", 8, "bob frames 4–11")


def test_stretches_of_thinned_video(root: Path) -> None:
    """Frames that take no part lie between its frames: they neither hide a stretch nor cut it into pieces."""
    for mask in (root / "masks").glob("**/*bob*"):
        shutil.rmtree(mask) if mask.is_dir() else mask.unlink()
    replace_frames(root, "bob", [picture("bob", i) if i < 4 else picture("bob", 4) for i in range(40)])
    replace_frames(root, "cid", [picture("cid", i % 9) // (40 if 10 <= i < 30 else 1) for i in range(40)])
    describe(root, take_every=4)
    report = run(root)
    frozen, black = find(report, "frozen"), find(report, "black")
    assert (frozen.count, frozen.places) == (9, ("bob frames 4–36",))
    assert (black.count, black.places) == (5, ("cid frames 12–28",))


def test_a_video_that_is_thinned_away(root: Path) -> None:
    replace_frames(root, "dan", [picture("dan", i) for i in range(6)])
    replace_frames(root, "eve", [picture("eve", i) for i in range(6)])
    (root / "exclude.csv").write_text("video,first,last,reason\neve,0,0,no signal\n")
    describe(root, take_every=100, exclude="exclude.csv")
    report = run(root)
    assert find(report, "few-taken").places == ("dan", "eve")
    assert not {"one-frame", "all-excluded"} & {problem.code for problem in report.problems}


def woven(video: str, index: int) -> np.ndarray:
    """Two moments in one frame: even lines from one, odd lines from the next."""
    frame = picture(video, index)
    frame[1::2] = picture(video, index + 3)[1::2]
    return frame


def test_interlaced_stretches(root: Path) -> None:
    replace_frames(root, "bob", [woven("bob", i) if 1 <= i <= 4 else picture("bob", i) for i in range(6)])
    problem = only(root, "interlaced")
    assert (problem.severity, problem.first) == ("warning", "bob frames 1–4")


def test_a_video_of_one_frame(root: Path) -> None:
    write(root / "videos/dan/000.png", picture("dan", 0))
    problem = only(root, "one-frame")
    assert (problem.severity, problem.count, problem.first) == ("warning", 1, "dan")


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ([70, 0, 20, 20], "the view [70, 0, 20, 20] lies outside its frames of 64×48 pixels"),
        ({"rect": [0, 0, 200, 48], "circle": [150, 24, 40]}, "the circle [150, 24, 40] shows next to nothing of the"),
    ],
)
def test_a_view_that_shows_nothing_of_the_frames(view: Any, found: str, root: Path) -> None:
    describe(root, view={"bob": view})
    problem = find(run(root), "view")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.places[0].startswith(f"bob: {found}")


def test_frames_that_change_size_within_a_video(root: Path) -> None:
    for index in (6, 7):
        write(root / f"videos/bob/{index:03}.png", picture("bob", index, WIDTH + 16, HEIGHT))
    problem = only(root, "size-change")
    assert (problem.severity, problem.count, problem.fix) == ("fatal", 1, mends.ONE_SIZE)
    assert problem.first == "videos/bob/006.png (80×48, not 64×48)"
    describe(root, split={"train": ["ann"], "test": ["cid"]})
    assert find(run(root), "size-change").severity == "warning"


def test_a_first_frame_of_another_size_may_be_excluded(root: Path) -> None:
    write(root / "videos/bob/000.png", picture("bob", 0, WIDTH + 16, HEIGHT))
    (root / "masks/bob/000.png").unlink()
    assert only(root, "size-change").first == "videos/bob/001.png (64×48, not 80×48)"
    (root / "exclude.csv").write_text("video,first,last,reason\nbob,0,0,another size\n")
    describe(root, exclude="exclude.csv")
    assert run(root).problems == []
    assert load_dataset(root)["bob"].size == (WIDTH, HEIGHT)  # to which a training holds all others


def test_nothing_labelled_in_train_is_fatal_and_in_test_a_note(root: Path) -> None:
    for path in masks_of(root)[:6]:
        path.unlink()
    assert find(run(root), "no-masks-in-train").severity == "fatal"
    describe(root, split={"train": ["bob", "cid"], "test": ["ann"]})
    assert only(root, "no-masks-in-test").severity == "note"


def test_it_is_told_where_nothing_is_left_unlabelled(root: Path) -> None:
    def told() -> bool:
        return any("--set method=strong" in note for note in run(root).summary.notes)

    assert told()
    masks_of(root)[0].unlink()
    assert not told()


def test_masks_without_a_dataset_file_are_fatal(root: Path) -> None:
    (root / "dataset.yaml").unlink()
    report = run(root)
    assert "--write" in find(report, "no-dataset-file").fix
    assert report.fatal
    shown = StringIO()
    report.print(Console(file=shown, width=200))
    assert shown.getvalue().count("dataset.yaml") == 1  # nothing is said twice


def test_masks_that_the_dataset_file_does_not_name_are_fatal_and_no_video(root: Path) -> None:
    describe(root, masks=None, classes=[], videos=".", split=None)
    report = run(root)
    assert "--write --force" in find(report, "no-dataset-file").fix
    assert {video.id.partition("_")[0] for video in report.summary.videos} == {"videos"}


@pytest.mark.parametrize("name", ["ann/000.txt", "ann.json"])
def test_masks_that_are_named_and_label_nothing_are_fatal(root: Path, name: str) -> None:
    for path in masks_of(root):
        path.unlink()
    assert only(root, "no-masks").severity == "note"  # an empty folder waits for them
    empty = {"categories": [{"id": 1, "name": "shaft"}], "images": [], "annotations": []}
    (root / "masks" / name).write_text(json.dumps(empty) if name.endswith("json") else "0 0.5 0.5 0.1 0.1")
    assert (problem := only(root, "no-label")).severity == "fatal"
    assert problem.first == "masks"


@pytest.mark.parametrize("palette", [False, True])
def test_masks_are_not_taken_for_frames(root: Path, palette: bool) -> None:
    for path in masks_of(root) if palette else ():
        image = Image.fromarray(np.asarray(Image.open(path)), "P")
        image.putpalette([0, 0, 0, 230, 159, 0, 86, 180, 233])
        image.save(path)
    problem = only(root / "masks", "masks-for-frames")
    assert (problem.severity, problem.count) == ("fatal", len(CASES))
    assert "in a folder `videos` and the masks in `masks` beside it" in problem.fix


def test_a_covered_lens_is_no_mask() -> None:
    """Its frames have few grey levels too, but no flat areas."""
    noise = np.random.default_rng(0).integers(0, 12, (64, 64), np.uint8)
    assert painted_levels(noise) == 0
    assert painted_levels(np.repeat(np.repeat(noise[:4, :4], 16, 0), 16, 1)) == len(np.unique(noise[:4, :4]))


def test_a_folder_of_masks_beside_the_videos_is_named(root: Path) -> None:
    (root / "dataset.yaml").unlink()
    (root / "masks/ann").rename(root / "truth")
    shutil.rmtree(root / "masks")
    (root / "videos").rename(root / "recordings")
    assert only(root, "masks-for-frames").first == "truth/000.png"


def test_new_masks_in_another_folder_than_the_named_one(root: Path) -> None:
    shutil.copytree(root / "masks", root / "videos" / "new")
    problem = only(root, "masks-for-frames")
    assert problem.fix.endswith(f"in dataset.yaml: `masks: [masks, {problem.first.rpartition('/')[0]}]`")


def test_frames_without_any_mask_are_sent_to_select(root: Path) -> None:
    shutil.rmtree(root / "masks")
    describe(root, masks=None, classes=[])
    problem = only(root, "no-masks")
    assert problem.severity == "note"
    assert "suture select" in problem.fix
    (root / "masks").mkdir()
    describe(root)
    assert only(root, "no-masks") == problem  # an empty folder holds no masks that nothing explains


def encode(path: Path, frames: Iterable[np.ndarray]) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def test_video_files_and_one_that_cannot_be_read(root: Path) -> None:
    encode(root / "videos/eva.mp4", [picture("eva", index) for index in range(10)])
    (root / "videos/fay.mp4").write_bytes((root / "videos/eva.mp4").read_bytes()[:300])
    write(root / "masks/eva__frame_000003.png", ids(0))
    report = run(root)
    reason = "is not a video that can be read (Invalid data found when processing input): it is cut off, damaged"
    assert find(report, "bad-video").first.startswith(f"videos/fay.mp4 {reason}")
    assert report.fatal
    assert [v.labelled for v in report.summary.videos if v.id == "eva"] == [1]


def test_a_video_that_cannot_be_read_hides_nothing_where_frames_of_it_are_excluded(root: Path) -> None:
    (root / "videos/fay.mp4").write_bytes(b"nothing")
    (root / "exclude.csv").write_text("video,first,last\nfay,0,3\nann,0,1\n")
    describe(root, exclude="exclude.csv")
    report = run(root)
    assert find(report, "bad-video").first.startswith("videos/fay.mp4 is not a video")
    assert [v.excluded for v in report.summary.videos if v.id == "ann"] == [2]


def test_a_video_that_is_cut_off(root: Path) -> None:
    path = root / "videos/eva.mkv"
    encode(path, [picture("eva", index % 50) for index in range(200)])
    assert run(root).problems == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    problem = find(run(root), "cut-video")
    assert problem.severity == "warning"
    assert re.fullmatch(r"eva \(about [0-9]+ after frame [0-9]+\)", problem.first)


def test_a_dataset_of_nothing_but_unreadable_videos_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "fay.mp4").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"fay\.mp4"):
        run(tmp_path)


def test_processes_find_the_same_as_one(root: Path) -> None:
    for index in range(FRAMES, 30):
        write(root / f"videos/ann/{index:03}.png", picture("ann", index % 50))
        write(root / f"videos/bob/{index:03}.png", picture("bob", min(index, 15)))
    (root / "videos/ann/020.png").write_bytes(b"no image")
    alone, together = run(root), check(root, progress=False, workers=2)
    assert together.problems == alone.problems
    assert together.class_table == alone.class_table
    assert together.summary == alone.summary


def test_a_task_that_kills_its_process_does_not_kill_the_pass() -> None:
    tasks = ["0", "10", "20", "__import__('os')._exit(1)", "40", "50"]
    assert [result for _, result in sorted(in_parallel(eval, tasks, 2))] == [0, 10, 20, 40, 50, None]


def test_processes_that_die_as_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script without its guarded main: no frame is blamed for it."""
    monkeypatch.setattr("suture.checks.measurements.start_in_pool", os._exit)
    with pytest.raises(UserError, match="die when they start"):
        list(in_parallel(eval, ["1", "2", "3"], 2))


def test_plain_pictures_are_not_taken_for_interlaced() -> None:
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 255, (96, 96), np.uint8)
    checks = np.indices((96, 96)).sum(axis=0).astype(np.uint8) % 2 * 200
    bars = np.repeat(np.arange(96) // 8 % 2 * 200, 96).reshape(96, 96).astype(np.uint8)
    assert not any(is_combed(grey) for grey in (noise, checks, bars, bars.T.copy()))
    ridges = np.full((121, 161), 90, np.uint8)
    ridges[32:48:2, 32:64] = 130  # of a tube in a small frame, shrunk to single lines
    assert not is_combed(ridges)


def test_drawn_masks_have_no_values_in_between() -> None:
    disc = np.zeros((64, 64), np.uint8)
    cv2.circle(disc, (30, 30), 20, 5, -1)
    cv2.line(disc, (0, 60), (60, 0), 3, 1)
    assert between_share(disc) < 0.05


def test_the_printed_report_fits_narrow_terminals_and_leads_with_what_it_is(root: Path) -> None:
    write(masks_of(root)[4], np.full((HEIGHT, WIDTH), 9, np.uint8))
    report = run(root)
    for width in (80, 100, 140):
        out = StringIO()
        report.print(Console(file=out, width=width))
        lines = out.getvalue().splitlines()
        assert lines[0].startswith("tiny: 3 cases, 3 videos")
        assert max(map(len, lines)) <= width
        text = out.getvalue()
        assert text.count("unknown") <= 1
        assert all(word in text for word in ("train", "val", "test", "needle", "masks/ann/004.png", "fatal"))


def test_ignored_pixels_have_a_row_where_there_are_any(root: Path) -> None:
    def shown() -> str:
        out = StringIO()
        run(root).print(Console(file=out, width=140))
        return out.getvalue()

    assert IGNORED not in shown()
    describe(root, classes=CLASSES[1:], unpainted="ignore")
    assert IGNORED in shown()


def test_the_last_line_of_what_only_the_user_can_answer_is_a_question(root: Path) -> None:
    """A draft asks it too, and is no failure then: the exit code is 0."""
    describe(root, classes=CLASSES[1:])
    for mask, last in (
        (ids(0), "1 question to answer before training: what do unpainted pixels mean?"),
        (np.full((HEIGHT, WIDTH), 9, np.uint8), "2 fatal problems: mend before training."),
    ):
        write(masks_of(root)[0], mask)
        out = StringIO()
        run(root).print(Console(file=out, width=140))
        assert out.getvalue().splitlines()[-1] == last


def test_the_report_as_json_holds_no_absolute_path(root: Path) -> None:
    write(masks_of(root)[4], np.full((HEIGHT, WIDTH), 9, np.uint8))
    text = json.dumps(run(root).to_json())
    assert str(root) not in text
    content = json.loads(text)
    assert content["fatal"] is True
    assert content["problems"][0]["first"] == "masks/ann/004.png"
    assert content["classes"]["needle"]["test"]["frames"] == 6


def test_vocalfolds_true_table(shared: Path) -> None:
    report = check(shared / "data" / "vocalfolds", progress=False)
    summary = report.summary
    assert (summary.frames, len(summary.videos), summary.cases, summary.labelled) == (536, 8, 2, 536)
    pathology = report.class_table["pathology"]
    assert sum(count.videos for count in pathology.values()) == 2
    assert {split: count.cases for split, count in pathology.items()} == {"train": 1, "test": 1}
    pixels = {name: sum(count.pixels for count in row.values()) for name, row in report.class_table.items()}
    assert sum(pixels.values()) == 536 * 512 * 512
    assert pixels[IGNORED] / sum(pixels.values()) == pytest.approx(0.034, abs=0.001)
    assert [(problem.code, problem.severity) for problem in report.problems] == [("divided-case", "warning")]


def test_of_masks_that_are_only_scored_all_are_looked_at_and_a_bounded_number_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    looked_at: list[int] = []
    monkeypatch.setattr(Dataset, "read_mask", lambda self, video, index: read.append(index))
    monkeypatch.setattr(Dataset, "validate_mask_header", lambda self, video, index: looked_at.append(index))
    dataset = Dataset("d", Path(), ClassTable(("a",), ((0, 0, 0),), {0: 0}), [Video("v", "v", [Frame(0, 0)])])
    validate_masks(dataset, [("v", index) for index in range(640)])
    assert read == list(range(0, 640, 10))  # from all over
    assert sorted(looked_at) == list(range(640))
    read.clear()
    validate_masks(dataset, [("v", 3), ("v", 5)])
    validate_masks(dataset, [])
    assert read == [3, 5]


def test_a_choice_of_frames_that_show_one_class_is_no_fault_of_the_masks(root: Path) -> None:
    dataset = load_dataset(root)
    with pytest.raises(UserError, match=r"no class but tissue.*; or choose more of .*data\.labelling leaves 4 out"):
        require_classes_to_learn(dataset, ["tissue"], 2)
    with pytest.raises(UserError, match=r"no class but tissue.*name the others in the class table"):
        require_classes_to_learn(dataset, ["tissue"], 6)
    require_classes_to_learn(dataset, ["tissue", "tool"], 2)
