"""`suture check`: a healthy dataset has no problems, and each kind of problem is found, counted and placed."""

import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import yaml
from dataset_builders import write, write_coco
from PIL import Image
from rich.console import Console

from suture.checks.check import check, require_classes_to_learn, require_labels, validate_masks
from suture.checks.check_report import IGNORED, CheckReport
from suture.checks.draft import write_draft
from suture.checks.frame_facts import is_combed, painted_levels
from suture.checks.parallel import in_parallel
from suture.checks.problems import Problem
from suture.core.errors import UserError
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.datasets import load_dataset
from suture.data.fingerprint import Fingerprints
from suture.data.images import MaskFile
from suture.data.labelling import from_list
from suture.prediction.mask_files import write_mask

WIDTH, HEIGHT, FRAMES = 64, 48, 6
CASES = ("ann", "bob", "cid")
CLASSES: list[dict[str, Any]] = [
    {"name": "tissue", "value": 0},
    {"name": "shaft", "value": 1},
    {"name": "needle", "value": 2},
]
PALETTE = np.array([(20, 20, 20), (0, 255, 0), (255, 60, 0)], np.uint8)
COLORS = [entry | {"value": PALETTE[entry["value"]].tolist()} for entry in CLASSES]


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


def exclude(root: Path, *lines: str, **changes: Any) -> None:
    (root / "exclude.csv").write_text("\n".join(["video,first,last,reason", *(f"{line},no signal" for line in lines)]))
    describe(root, exclude="exclude.csv", **changes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A healthy dataset: three cases of six frames, each with a mask."""
    for case in CASES:
        for index in range(FRAMES):
            write(tmp_path / f"videos/{case}/{index:03}.png", picture(case, index))
            write(tmp_path / f"masks/{case}/{index:03}.png", ids(index))
    describe(tmp_path)
    return tmp_path


def run(root: Path) -> CheckReport:
    return check(root, progress=False, workers=1)


def codes(root: Path) -> set[str]:
    return {problem.code for problem in run(root).problems}


def find(report: CheckReport, code: str) -> Problem:
    (problem,) = [problem for problem in report.problems if problem.code == code]
    return problem


def only(root: Path, code: str) -> Problem:
    """The one problem that there should be."""
    report = run(root)
    assert [problem.code for problem in report.problems] == [code]
    return report.problems[0]


def printed(report: CheckReport, width: int = 140) -> list[str]:
    out = StringIO()
    report.print(Console(file=out, width=width))
    return out.getvalue().splitlines()


def masks_of(root: Path) -> list[Path]:
    return sorted((root / "masks").rglob("*.png"))


def change_masks(root: Path, change: Callable[[np.ndarray], np.ndarray], suffix: str = ".png", **changes: Any) -> None:
    """Change the ids of all masks, and dataset.yaml."""
    for path in masks_of(root):
        path.unlink()
        write(path.with_suffix(suffix), change(ids(int(path.stem))).astype(np.uint8))
    describe(root, **changes)


def change_mask(root: Path, position: int, mask: np.ndarray) -> None:
    write(masks_of(root)[position], mask)


def with_patch(mask: np.ndarray, value: Any) -> np.ndarray:
    mask[:2, :5] = value
    return mask


def smooth(mask: np.ndarray) -> np.ndarray:
    return cv2.resize(mask[::2, ::2], (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)


def replace_frames(root: Path, video: str, pictures: Iterable[np.ndarray]) -> None:
    for index, pixels in enumerate(pictures):
        write(root / f"videos/{video}/{index:03}.png", pixels)


def woven(video: str, index: int) -> np.ndarray:
    """Two moments in one frame: even lines from one, odd lines from the next."""
    frame = picture(video, index)
    frame[1::2] = picture(video, index + 3)[1::2]
    return frame


def almost(frame: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(7).integers(-2, 3, frame.shape)
    return np.clip(frame.astype(int) + noise, 0, 255).astype(np.uint8)


def absurd_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)


def encode(path: Path, frames: Iterable[np.ndarray]) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def test_a_healthy_dataset_has_no_problems(root: Path) -> None:
    early = check(root, full=False)
    report = run(root)
    assert report.problems == [] == early.problems
    assert (report.fatal, report.complete, early.complete) == (False, True, False)
    summary = report.summary
    assert (summary.cases, len(summary.videos), summary.frames, summary.labelled, summary.shots) == (3, 3, 18, 18, 3)
    count = report.class_table["shaft"]["train"]
    assert (count.pixels, count.frames, count.videos, count.cases) == (6 * 400, 6, 1, 1)
    assert report.class_table[IGNORED]["train"].pixels == 0


@pytest.mark.parametrize(
    ("change", "code", "severity", "count", "first"),
    [
        (
            lambda root: [change_mask(root, n, with_patch(ids(0), 7)) for n in (4, 5)],
            *("unknown-value", "fatal", 2, "masks/ann/004.png"),
        ),
        (
            lambda root: change_masks(root, lambda m: smooth(PALETTE[m]), classes=COLORS),
            "smoothed-mask",
            "fatal",
            18,
            "",
        ),
        (
            lambda root: change_mask(root, 0, smooth((2 * (ids(0) == 1)).astype(np.uint8))),
            "smoothed-mask",
            "fatal",
            1,
            "masks/ann/000.png",
        ),
        (lambda root: change_masks(root, lambda m: PALETTE[m], ".jpg", classes=COLORS), "jpeg-mask", "fatal", 18, ""),
        (lambda root: change_mask(root, 3, ids(0)[:, :-8]), "mask-size", "fatal", 1, "masks/ann/003.png (56×48 on"),
        (lambda root: absurd_header(root / "videos/ann/000.png"), "bad-frame", "fatal", 1, "videos/ann/000.png"),
        (lambda root: write(root / "masks/ann/999.png", ids(0)), "mask-without-frame", "warning", 1, "masks/ann/999"),
        (
            lambda root: describe(root, classes=[*CLASSES, {"name": "clip", "value": 3}]),
            "class-never",
            "warning",
            1,
            "",
        ),
        (lambda root: describe(root, view=[0, 0, 40, HEIGHT]), "class-outside-view", "warning", 1, ""),
        (lambda root: describe(root, classes=CLASSES[1:]), "unpainted", "fatal", 18, "masks/ann/000.png"),
        (
            lambda root: write(root / "videos/cid/004.png", picture("ann", 2)),
            *("duplicate-frame", "fatal", 1, "videos/ann/002.png = videos/cid/004.png"),
        ),
        (
            lambda root: write(root / "videos/cid/004.png", almost(picture("ann", 2))),
            *("similar-frame", "warning", 1, "videos/ann/002.png ≈ videos/cid/004.png"),
        ),
        (
            lambda root: replace_frames(
                root, "bob", [picture("bob", i) // (40 if i in (2, 3, 5) else 1) for i in range(6)]
            ),
            *("black", "warning", 3, "bob frames 2–3"),
        ),
        (
            lambda root: replace_frames(root, "bob", [picture("bob", min(i, 4)) for i in range(12)]),
            *("frozen", "warning", 8, "bob frames 4–11"),
        ),
        (
            lambda root: replace_frames(root, "bob", [(woven if 1 <= i <= 4 else picture)("bob", i) for i in range(6)]),
            *("interlaced", "warning", 4, "bob frames 1–4"),
        ),
        (lambda root: write(root / "videos/dan/000.png", picture("dan", 0)), "one-frame", "warning", 1, "dan"),
    ],
)
def test_one_mistake_is_one_problem(
    root: Path, change: Callable[[Path], None], code: str, severity: str, count: int, first: str
) -> None:
    change(root)
    problem = only(root, code)
    assert (problem.severity, problem.count) == (severity, count)
    assert problem.first.startswith(first)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda root: change_masks(root, lambda m: m + 1), "ids-from-one"),
        (lambda root: change_masks(root, lambda m: PALETTE[m]), "colours-for-ids"),
        (lambda root: describe(root, classes=COLORS, unpainted="tissue"), "ids-for-colours"),
    ],
)
def test_masks_that_contradict_the_class_table(root: Path, change: Callable[[Path], None], code: str) -> None:
    change(root)
    assert find(run(root), code).severity == "fatal"


def test_predicted_masks_are_recognised_by_their_palette(root: Path) -> None:
    classes = [entry | {"value": entry["value"] + 1} for entry in CLASSES]
    change_masks(root, lambda mask: mask + 1, classes=classes)
    dataset = load_dataset(root)
    write_mask(masks_of(root)[0], ids(0), dataset.classes)
    assert only(root, "predicted-mask").first == "masks/ann/000.png"
    describe(root)
    change_masks(root, lambda mask: mask)
    write_mask(masks_of(root)[0], ids(0), load_dataset(root).classes)
    assert not run(root).problems  # the numbers of the classes are their values


def test_unknown_values_are_counted(root: Path) -> None:
    change_masks(root, lambda mask: PALETTE[mask], classes=COLORS)
    assert not run(root).problems
    change_mask(root, 7, with_patch(PALETTE[ids(0)], (12, 200, 77)))
    assert only(root, "unknown-value").what.endswith(": 12,200,77 (10 pixels)")


@pytest.mark.parametrize("unpainted", ["ignore", "background", "shaft"])
def test_unpainted_pixels_that_are_explained(root: Path, unpainted: str) -> None:
    describe(root, classes=CLASSES[1:], unpainted=unpainted)
    assert run(root).problems == []


@pytest.fixture
def misnamed(root: Path) -> Path:
    """The official split turned round."""
    for case, name in (("ann", "test_1"), ("bob", "val"), ("cid", "train")):
        (root / "videos" / case).rename(root / "videos" / name)
        (root / "masks" / case).rename(root / "masks" / name)
    return root


@pytest.mark.parametrize(
    ("cases", "split", "places"),
    [
        ({}, {"train": ["test_1", "val"], "test": ["train"]}, ("test_1 in train", "train in test")),
        ({}, {"train": ["train"], "val": ["val"], "test": ["test_1"]}, ()),
        # The name of a case counts before those of its videos.
        (
            {"train_of_fold_2": ["test_1"], "ann": ["train"]},
            {"train": ["train_of_fold_2", "val"], "test": ["ann"]},
            ("train in test",),
        ),
        ({"ann": ["test_1", "train"]}, {"train": ["ann"], "test": ["val"]}, ("test_1 in train",)),
    ],
)
def test_a_name_that_says_another_split(misnamed: Path, cases: dict, split: dict, places: tuple[str, ...]) -> None:
    describe(misnamed, cases=cases, split=split)
    problem = next((one for one in run(misnamed).problems if one.code == "misnamed-split"), None)
    assert (problem.places if problem else ()) == places


def test_a_missing_video_is_a_finding_beside_the_others(root: Path) -> None:
    describe(root, split={"train": ["ann", "dan"], "val": ["bob"], "test": ["cid"]})
    change_mask(root, 0, np.full((HEIGHT, WIDTH), 7))
    report = run(root)
    assert [problem.code for problem in report.problems] == ["missing-video", "unknown-value"]
    assert find(report, "missing-video").first.startswith("dataset.yaml: split.train names 'dan', which is no case")


def test_labels_of_a_tool_beside_values_of_images(root: Path) -> None:
    """COCO counts its categories, and whoever painted the images counted theirs: here the other way round."""
    shutil.rmtree(root / "masks/cid")
    images = [{"id": n, "file_name": f"cid/{n:03}.png", "width": WIDTH, "height": HEIGHT} for n in range(FRAMES)]
    square = [[2, 2, 30, 2, 30, 30, 2, 30]]
    shapes = [{"image_id": n, "category_id": 1 + n % 2, "segmentation": square} for n in range(FRAMES)]
    labels = [{"id": 1, "name": "Nadel"}, {"id": 2, "name": "Schaft"}]
    (root / "masks/round2.json").write_text(json.dumps({"images": images, "categories": labels, "annotations": shapes}))
    assert "to which values do the labels Nadel and Schaft belong?" in write_draft(root, force=True).read_text()
    describe(root, unpainted="tissue")
    with pytest.raises(UserError, match=r"none of the labels of .*round2\.json \(Nadel, Schaft\) is a class"):
        load_dataset(root)
    by_value = [{"name": "shaft", "value": [1, "Schaft"]}, {"name": "needle", "value": [2, "Nadel"]}]
    by_name = [{"name": "Schaft", "value": 1}, {"name": "Nadel", "value": 2}]  # names decide, whatever the ids
    for classes in (by_value, by_name):
        describe(root, unpainted="tissue", classes=[CLASSES[0], *classes])
        report = run(root)
        assert not report.problems
        assert report.class_table[classes[1]["name"]]["test"].frames == 3
        assert "to which values" not in write_draft(root, force=True).read_text()


def test_files_that_do_not_decode_are_collected(root: Path) -> None:
    for name in ("videos/bob/002.png", "videos/bob/003.png", "masks/cid/005.png"):
        (root / name).write_bytes((root / name).read_bytes()[:-200])
    (root / "masks/cid/004.png").write_bytes(b"")
    report = run(root)
    assert report.fatal
    assert (find(report, "bad-frame").count, find(report, "bad-frame").first) == (2, "videos/bob/002.png")
    assert (find(report, "bad-mask").count, find(report, "bad-mask").first) == (2, "masks/cid/004.png")


def test_masks_of_which_none_fits_a_frame(root: Path) -> None:
    shutil.rmtree(root / "masks")
    write(root / "masks/ann/999.png", ids(0))
    assert only(root, "no-mask-fits").severity == "fatal"
    with pytest.raises(UserError, match=r"1 mask without a frame.*masks/ann/999\.png.*name each mask"):
        require_labels(load_dataset(root))


def test_masks_numbered_past_the_end_of_a_video(root: Path) -> None:
    encode(root / "videos/eva.mp4", [picture("eva", index) for index in range(10)])
    for index in (0, 6, 12, 18):
        write(root / f"masks/eva/{index:09}.png", ids(0))
    assert find(run(root), "mask-past-end").severity == "warning"  # it is in no split: nobody reads it
    load_dataset(root).require_clear_masks()
    describe(root, split={"train": ["ann", "eva"], "val": ["bob"], "test": ["cid"]})
    problem = only(root, "mask-past-end")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert problem.first == "masks up to frame 18, but eva has 10 frames, 0–9 (another frame rate?)"
    for index in (0, 6, 12):
        (root / f"masks/eva/{index:09}.png").unlink()
    assert only(root, "mask-without-frame").first == "masks/eva/000000018.png (eva has 10 frames, 0–9)"


def test_a_mask_in_doubt_hides_nothing_else(root: Path) -> None:
    write(root / "masks/003.png", ids(0))
    write(root / "masks/ann__frame_000002.png", ids(0))
    write(root / "masks/bob/001.png", ids(0)[:, :-8])
    report = run(root)
    assert {problem.code for problem in report.problems} == {"doubtful-mask", "mask-size"}
    problem = find(report, "doubtful-mask")
    assert (problem.severity, problem.count) == ("fatal", 2)
    assert set(problem.places) == {
        "masks/003.png fits ann (frame 3), bob (frame 3) and cid (frame 3)",
        "masks/ann/002.png fits ann (frame 2), which has the mask masks/ann__frame_000002.png",
    }


def test_masks_of_ignored_pixels_alone_are_fatal(root: Path) -> None:
    change_masks(root, np.zeros_like, classes=CLASSES[1:], unpainted="ignore")
    assert only(root, "all-ignored").severity == "fatal"
    change_mask(root, 0, ids(0))
    assert not run(root).fatal


def test_a_single_class_in_train_is_fatal(root: Path) -> None:
    """As binary masks of 0 and 255 whose 255 is ignored: the scores would be perfect, of nothing."""
    void = {"name": "void", "value": 255, "ignore": True}
    change_masks(root, lambda mask: 255 * (mask == 1), classes=[void], unpainted="background")
    problem = only(root, "one-class")
    assert problem.severity == "fatal"
    assert problem.what.endswith(": background")
    describe(root, classes=[{"name": "tool", "value": 255}], unpainted="background")
    assert run(root).problems == []
    describe(root, classes=[{"name": "tool", "value": 255}])
    assert only(root, "unpainted").severity == "fatal"  # of which the single class is a consequence


def test_classes_in_one_split_only(root: Path) -> None:
    for path in masks_of(root):
        mask = ids(int(path.stem))
        write(path, np.where(mask == (1 if path.parent.name == "ann" else 2), 0, mask).astype(np.uint8))
    report = run(root)
    assert find(report, "class-not-in-train").what == "1 class in test or val but not in train: shaft"
    assert find(report, "class-not-in-train").severity == "warning"
    assert find(report, "class-not-scored").what.endswith("needle (no test)")
    assert find(report, "class-not-scored").severity == "note"
    describe(root, split={"train": ["ann"], "val": ["cid"]})
    assert find(run(root), "class-not-scored").what.endswith("needle (no val)")


def test_a_case_in_two_splits(root: Path) -> None:
    dataset = load_dataset(root)
    for video in dataset:
        video.case = "ann"
    assert find(check(dataset, progress=False, workers=1), "divided-case").severity == "fatal"
    dataset.divides_cases = True
    report = check(dataset, progress=False, workers=1)
    assert find(report, "divided-case").severity == "warning"
    assert not report.fatal


def test_a_cameras_12_bits_in_16(root: Path) -> None:
    """They are no black frames to leave out, and a training on them would learn from nothing."""
    write(root / "videos/ann/002.png", np.zeros((HEIGHT, WIDTH, 3), np.uint16))  # of full 16 bits, and black indeed
    # Of bob's, the first is black indeed: it hides nothing.
    replace_frames(root, "bob", [picture("bob", i).astype(np.uint16) * (16 if i else 0) for i in range(6)])
    report = run(root)
    problem = find(report, "few-bits")
    assert (problem.severity, problem.places) == ("fatal", ("videos/bob/000.png",))
    assert problem.what.endswith("divide their values by 16")
    assert find(report, "black").places == ("ann frame 2",)


def test_excluded_frames_are_not_complained_about(root: Path) -> None:
    replace_frames(root, "bob", [picture("bob", i) // (40 if i == 2 else 1) for i in range(6)])
    exclude(root, "bob,2,2")
    report = run(root)
    assert [problem.code for problem in report.problems] == ["mask-on-excluded"]
    assert report.summary.videos[1].excluded == 1
    (root / report.problems[0].places[0]).unlink()
    assert run(root).problems == []
    exclude(root, "bob,0,5")
    assert find(run(root), "all-excluded").first == "bob"


def test_stretches_of_thinned_video(root: Path) -> None:
    """Frames that take no part lie between its frames: they neither hide a stretch nor cut it into pieces."""
    shutil.rmtree(root / "masks/bob")
    replace_frames(root, "bob", [picture("bob", min(i, 4)) for i in range(40)])
    replace_frames(root, "cid", [picture("cid", i % 9) // (40 if 10 <= i < 30 else 1) for i in range(40)])
    describe(root, take_every=4)
    report = run(root)
    frozen, black = find(report, "frozen"), find(report, "black")
    assert (frozen.count, frozen.places) == (9, ("bob frames 4–36",))
    assert (black.count, black.places) == (5, ("cid frames 12–28",))


def test_a_video_that_is_thinned_away(root: Path) -> None:
    for video in ("dan", "eve"):
        replace_frames(root, video, [picture(video, i) for i in range(6)])
    exclude(root, "eve,0,0", take_every=100)
    report = run(root)
    assert find(report, "few-taken").places == ("dan", "eve")
    assert not {"one-frame", "all-excluded"} & {problem.code for problem in report.problems}


@pytest.mark.parametrize(
    ("view", "place"),
    [
        ([70, 0, 20, 20], "lies outside its frames of 64×48 pixels"),
        ({"rect": [0, 0, 200, 48], "circle": [150, 24, 40]}, "lies outside its frames of 64×48 pixels"),
    ],
)
def test_a_view_that_shows_nothing_of_the_frames(view: Any, place: str, root: Path) -> None:
    describe(root, view={"bob": view})
    problem = find(run(root), "view")
    assert (problem.severity, problem.count) == ("fatal", 1)
    assert place in problem.places[0]


def test_frames_that_change_size_within_a_video(root: Path) -> None:
    write(root / "videos/bob/000.png", picture("bob", 0, WIDTH + 16, HEIGHT))
    (root / "masks/bob/000.png").unlink()
    problem = only(root, "size-change")
    assert (problem.severity, problem.count, problem.first) == ("fatal", 1, "videos/bob/001.png (64×48, not 80×48)")
    describe(root, split={"train": ["ann"], "test": ["cid"]})
    assert find(run(root), "size-change").severity == "warning"
    exclude(root, "bob,0,0")
    assert run(root).problems == []
    assert load_dataset(root)["bob"].size == (WIDTH, HEIGHT)  # to which a training holds all others


def test_nothing_labelled_in_train_is_fatal_and_in_test_a_note(root: Path) -> None:
    for path in masks_of(root)[:6]:
        path.unlink()
    assert find(run(root), "no-masks-in-train").severity == "fatal"
    describe(root, split={"train": ["bob", "cid"], "test": ["ann"]})
    assert only(root, "no-masks-in-test").severity == "note"


def test_a_note_where_nothing_is_left_unlabelled(root: Path) -> None:
    assert any("--set method=strong" in note for note in run(root).summary.notes)
    masks_of(root)[0].unlink()
    assert not any("--set method=strong" in note for note in run(root).summary.notes)


def test_masks_that_no_dataset_file_names_are_fatal_and_no_video(root: Path) -> None:
    (root / "dataset.yaml").unlink()
    report = run(root)
    assert find(report, "no-dataset-file").severity == "fatal"
    assert not any("There is no dataset.yaml" in line for line in printed(report, 200))  # the problem says so
    describe(root, masks=None, classes=[], videos=".", split=None)
    report = run(root)
    assert find(report, "no-dataset-file").severity == "fatal"
    assert {video.id.partition("_")[0] for video in report.summary.videos} == {"videos"}


@pytest.mark.parametrize("name", ["ann/000.txt", "ann.json"])
def test_masks_that_are_named_and_label_nothing_are_fatal(root: Path, name: str) -> None:
    for path in masks_of(root):
        path.unlink()
    assert only(root, "no-masks").severity == "note"  # an empty folder waits for them
    empty = {"categories": [{"id": 1, "name": "shaft"}], "images": [], "annotations": []}
    (root / "masks" / name).write_text(json.dumps(empty) if name.endswith("json") else "0 0.5 0.5 0.1 0.1")
    problem = only(root, "no-label")
    assert (problem.severity, problem.first) == ("fatal", "masks")


@pytest.mark.parametrize("palette", [False, True])
def test_masks_are_not_taken_for_frames(root: Path, palette: bool) -> None:
    for path in masks_of(root) if palette else ():
        image = Image.fromarray(np.asarray(Image.open(path)), "P")
        image.putpalette([0, 0, 0, 230, 159, 0, 86, 180, 233])
        image.save(path)
    problem = only(root / "masks", "masks-for-frames")
    assert (problem.severity, problem.count) == ("fatal", len(CASES))
    shutil.copytree(root / "masks", root / "videos" / "new")
    assert only(root, "masks-for-frames").first == "videos/new/ann/000.png"


def test_a_covered_lens_is_no_mask() -> None:
    """Its frames have few grey levels too, but no flat areas."""
    noise = np.random.default_rng(0).integers(0, 12, (64, 64), np.uint8)
    assert painted_levels(noise) == 0
    assert painted_levels(np.repeat(np.repeat(noise[:4, :4], 16, 0), 16, 1)) == len(np.unique(noise[:4, :4]))


def test_video_files_and_one_that_cannot_be_read(root: Path) -> None:
    encode(root / "videos/eva.mp4", [picture("eva", index) for index in range(10)])
    (root / "videos/fay.mp4").write_bytes((root / "videos/eva.mp4").read_bytes()[:300])
    write(root / "masks/eva__frame_000003.png", ids(0))
    exclude(root, "fay,0,3", "ann,0,1")
    report = run(root)
    assert find(report, "bad-video").first.startswith("videos/fay.mp4 is not a video that can be read")
    assert report.fatal
    assert {v.id: (v.labelled, v.excluded) for v in report.summary.videos}["eva"] == (1, 0)
    assert {v.id: v.excluded for v in report.summary.videos}["ann"] == 2


def test_a_video_that_is_cut_off(root: Path) -> None:
    path = root / "videos/eva.mkv"
    encode(path, [picture("eva", index % 50) for index in range(200)])
    assert run(root).problems == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    problem = find(run(root), "cut-video")
    assert problem.severity == "warning"
    assert re.fullmatch(r"eva \(about [0-9]+ after frame [0-9]+\)", problem.first)


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
    monkeypatch.setattr("suture.checks.parallel.start_in_pool", os._exit)
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


@pytest.mark.parametrize("width", [80, 140])
def test_the_printed_report_fits_the_terminal_and_leads_with_a_summary(root: Path, width: int) -> None:
    change_mask(root, 4, np.full((HEIGHT, WIDTH), 9))
    lines = printed(run(root), width)
    assert lines[0].startswith("tiny: 3 cases, 3 videos")
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(word in text for word in ("train", "val", "test", "needle", "masks/ann/004.png", "fatal"))


def test_the_last_line_of_what_only_the_user_can_answer_is_a_question(root: Path) -> None:
    """A draft asks it too, and is no failure then: the exit code is 0."""
    describe(root, classes=CLASSES[1:])
    assert printed(run(root))[-1].startswith("1 question to answer before training")
    change_mask(root, 0, np.full((HEIGHT, WIDTH), 9))
    assert printed(run(root))[-1].startswith("2 fatal problems")


def test_the_report_as_json_holds_no_absolute_path(root: Path) -> None:
    change_mask(root, 4, np.full((HEIGHT, WIDTH), 9))
    text = json.dumps(run(root).to_json())
    assert str(root) not in text
    content = json.loads(text)
    assert content["fatal"] is True
    assert content["problems"][0]["places"] == ["masks/ann/004.png"]
    assert content["class_table"]["needle"]["test"]["frames"] == 6


def test_real_vocalfolds(shared: Path) -> None:
    report = check(shared / "data" / "vocalfolds", full=False)
    summary = report.summary
    assert (summary.frames, len(summary.videos), summary.cases, summary.labelled) == (536, 8, 2, 536)
    assert [(problem.code, problem.severity) for problem in report.problems] == [("divided-case", "warning")]


def test_of_masks_that_are_only_scored_a_bounded_number_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(Dataset, "read_mask", lambda self, video, index: read.append(index))
    monkeypatch.setattr("suture.checks.check.image_size", lambda path: (4, 3))
    frames = [Frame(index, index, Path("a.png"), MaskFile(Path("a.png"))) for index in range(640)]
    dataset = Dataset("d", Path(), ClassTable(("a",), ((0, 0, 0),), {0: 0}), [Video("v", "v", frames)])
    dataset["v"].size = (4, 3)
    validate_masks(dataset, [("v", index) for index in range(640)])
    assert read == list(range(0, 640, 10))  # from all over
    validate_masks(dataset, [])


def test_a_choice_of_frames_that_show_one_class_is_no_fault_of_the_masks(root: Path) -> None:
    dataset = load_dataset(root)
    with pytest.raises(UserError, match=r"no class but one: tissue.*data\.labelling leaves 4 out"):
        require_classes_to_learn(dataset, ["tissue"], 2)
    with pytest.raises(UserError, match=r"no class but one: tissue"):
        require_classes_to_learn(dataset, ["tissue"], 6)
    require_classes_to_learn(dataset, ["tissue", "tool"], 2)


def test_interlaced_video_is_deinterlaced_by_a_key(root: Path) -> None:
    encode(root / "videos/bob.mp4", [woven("bob", index) for index in range(8)])
    shutil.rmtree(root / "videos/bob")
    shutil.rmtree(root / "masks/bob")
    replace_frames(root, "cid", [woven("cid", index) for index in range(6)])
    assert find(run(root), "interlaced").count == 14
    as_stored = load_dataset(root)
    describe(root, deinterlace=True)
    assert "interlaced" not in codes(root)
    dataset = load_dataset(root)
    for video in ("bob", "cid"):
        even = as_stored[video].read(3)[::2].astype(int)
        assert np.abs(dataset[video].read(3)[::2] - even).max() <= 2
    assert Fingerprints(root).video(dataset["cid"]) != Fingerprints(root).video(as_stored["cid"])


@pytest.mark.parametrize("name", ["9" * 5000, "ann__frame_" + "9" * 5000, "ann/" + "9" * 5000])
def test_long_digits_in_names_of_frames_are_shortened(root: Path, name: str) -> None:
    write_coco(root / "coco.json", f"{name}.png")
    describe(root, masks="coco.json", classes=[{"name": "duct"}], unpainted="background")
    assert len(only(root, "no-mask-fits").first) < 500
    (root / "list.txt").write_text(name.replace("/", " "))
    with pytest.raises(UserError, match=r"list\.txt, line 1") as error:
        from_list(root / "list.txt", load_dataset(root))
    assert len(str(error.value)) < 500
