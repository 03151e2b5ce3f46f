import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pycocotools import mask as coco
from two_videos import write_file

from suture.checks.check import check, require_labels
from suture.checks.draft import write_draft
from suture.core.errors import UserError
from suture.data.classes import IGNORE, UNPAINTED
from suture.data.datasets import load_dataset
from suture.data.formats import open_export
from suture.data.formats.shapes import DrawnImage, ShapeMask

SQUARE = [[2, 1, 6, 1, 6, 4, 2, 4]]


def content(*shapes: Any, name: str = "a/0001.png", labels: tuple[str, ...] = ("grasper", "clip")) -> dict[str, Any]:
    """A COCO file with one image of 8 × 6 pixels; shapes are (label, segmentation)."""
    return {
        "images": [{"id": 1, "file_name": name, "width": 8, "height": 6}],
        "categories": [{"id": 10 + number, "name": label} for number, label in enumerate(labels)],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": 10 + labels.index(label), "segmentation": segmentation}
            for number, (label, segmentation) in enumerate(shapes)
        ],
    }


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def read(path: Path, frame: str = "a/0001") -> np.ndarray:
    return open_export(path).mask(frame, {"grasper": 1, "clip": 2}, None).read(by_color=False)


def test_polygons(tmp_path: Path) -> None:
    ids = read(write(tmp_path / "coco.json", content(("grasper", SQUARE))))
    expected = np.full((6, 8), UNPAINTED)
    expected[1:4, 2:6] = 1
    assert (ids == expected).all()


@pytest.mark.parametrize("folder", ["", "./", "images/", "/home/ann/export/images/", "C:\\data\\images\\"])
def test_folders_in_file_names_do_not_matter(tmp_path: Path, folder: str) -> None:
    (tmp_path / "train/5").mkdir(parents=True)
    Image.new("RGB", (8, 6)).save(tmp_path / "train/5/x1.png")
    write(tmp_path / "masks.json", content(("grasper", SQUARE), name=f"{folder}x1.jpg"))
    write(tmp_path / "dataset.yaml", {"masks": "masks.json", "classes": [{"name": "grasper"}]})
    dataset = load_dataset(tmp_path)
    assert dataset["train_5"].with_mask == [0]
    assert not dataset.notes


def test_later_shapes_lie_on_top(tmp_path: Path) -> None:
    whole = [[0, 0, 8, 0, 8, 6, 0, 6]]
    assert set(np.unique(read(write(tmp_path / "a.json", content(("grasper", SQUARE), ("clip", whole)))))) == {2}
    assert set(np.unique(read(write(tmp_path / "b.json", content(("clip", whole), ("grasper", SQUARE)))))) == {1, 2}


masks = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40))


@given(st.lists(st.tuples(st.sampled_from("ab"), hnp.arrays(bool, (3, 4))), max_size=5))
def test_shapes_are_painted_in_order_and_the_covered_ones_counted(drawn: list[tuple[str, np.ndarray]]) -> None:
    label_ids = {"a": 1, "b": 2}
    expected = np.full((3, 4), UNPAINTED)
    for label, inside in drawn:
        expected[inside] = label_ids[label]
    covered = sum(bool(inside.any()) and label_ids[label] not in expected[inside] for label, inside in drawn)
    shapes = [(label, {"size": [3, 4], "counts": runs(inside)}) for label, inside in drawn]
    ids, found = ShapeMask("mask", DrawnImage(4, 3, shapes), label_ids).examine(by_color=False)
    assert (ids == expected).all()
    assert found == covered


def runs(mask: np.ndarray) -> list[int]:
    """Run lengths as COCO counts them: down the columns, the first of what is not set."""
    edges = np.flatnonzero(np.diff(mask.T.ravel(), prepend=False))
    return np.diff([0, *edges, mask.size]).tolist()


@given(masks, st.booleans())
def test_run_lengths_are_what_pycocotools_wrote(mask: np.ndarray, packed: bool) -> None:
    height, width = mask.shape
    segmentation: dict[str, Any] = {"size": [height, width]}
    if packed:
        segmentation["counts"] = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    else:
        segmentation["counts"] = runs(mask)
    drawn = ShapeMask("mask", DrawnImage(width, height, [("a", segmentation)]), {"a": 1}).read(by_color=False)
    assert ((drawn == 1) == mask).all()


@given(st.text(max_size=20) | st.lists(st.integers(-5, 60), max_size=6))
def test_any_run_lengths_are_drawn_or_refused(counts: Any) -> None:
    mask = ShapeMask("mask of a.json", DrawnImage(8, 6, [("a", {"size": [6, 8], "counts": counts})]), {"a": 1})
    with contextlib.suppress(UserError):
        assert set(np.unique(mask.read(by_color=False))) <= {1, UNPAINTED}


@pytest.mark.parametrize(
    "segmentation",
    [
        [[0, 0, 1e9, 0, 5, 5]],
        [[0, 0, float("nan"), 0, 5, 5]],
        [[0, 0, 1, 0, 5]],
        [["a"] * 6],
        [5],
        [[[0, 0], [4, 0], [4, 4]]],  # pairs, of which three are no box
        "polygon",
        {"counts": [48]},
        {"size": [8, 6], "counts": [48]},
        {"size": [6, 8], "counts": [47]},
        {"size": [6, 8], "counts": [[48]]},
        {"size": [6, 8], "counts": [2**62] * 4 + [48]},  # whose sum wraps to 48
    ],
)
def test_shapes_that_cannot_be_drawn_are_named(tmp_path: Path, segmentation: Any) -> None:
    path = write(tmp_path / "coco.json", content(("grasper", segmentation)))
    with pytest.raises(UserError, match=r"coco\.json: a/0001 has a shape that cannot be drawn"):
        read(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "is not a COCO file"),
        ({"images": [], "annotations": []}, r"is not a COCO file \(categories: field required\)"),
        (
            content() | {"images": [{"id": 1, "file_name": "a", "width": None}]},
            r"images\.0\.width: input should be a",
        ),
        (content() | {"images": [{"id": [1], "file_name": "a", "width": 8, "height": 6}]}, r"images\.0\.id"),
        (content() | {"images": content()["images"] * 2}, "holds two images a/0001.png"),
        (content() | {"images": [{"id": 1, "file_name": "a", "width": 60000, "height": 60000}]}, "impossible"),
        (content() | {"images": [{"id": 1, "file_name": "a", "width": -8, "height": -6}]}, "impossible"),
        (content(("grasper", SQUARE)) | {"images": []}, "image id 1 and category id 10"),
        (content(("grasper", SQUARE)) | {"categories": []}, "image id 1 and category id 10"),
    ],
)
def test_files_that_are_not_coco_are_named(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"coco\.json.*{message}"):
        open_export(write(tmp_path / "coco.json", value))


@pytest.mark.parametrize("text", [b"{", b'{"\xff": 1}', b'{"images": ' + b"9" * 5000 + b"}", b"[" * 100_000])
def test_files_that_are_not_json_are_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "coco.json").write_bytes(text)
    with pytest.raises(UserError, match=r"coco\.json is not valid JSON"):
        open_export(tmp_path / "coco.json")


@pytest.mark.parametrize(
    ("place", "name", "video", "index"),
    [
        ("coco.json", "a/0001.png", "a", 0),
        ("coco.json", "images\\b\\0003.jpg", "b", 2),
        ("coco.json", "b__frame_000001.png", "b", 1),
        ("coco.json", "images/cb0618f6-b__frame_000001.png", "b", 1),  # Label Studio
        ("coco.json", "..\\media\\upload\\4\\cb0618f6-b__frame_000001.png", "b", 1),
        ("coco.json", "/data/local-files/?d=label%5Cb__frame_000001.png", "b", 1),  # its local storage
        ("coco.json", "/data/local-files/?d=b__frame_000001.png", "b", 1),
        ("masks/b.json", "0002.png", "b", 1),
    ],
)
def test_in_a_dataset(root: Path, place: str, name: str, video: str, index: int) -> None:
    write(root / place, content(("grasper", SQUARE), name=name))
    write_file(root, place.split("/")[0])
    dataset = load_dataset(root)
    assert {video.id: video.with_mask for video in dataset if video.with_mask} == {video: [index]}
    assert int(dataset.read_mask(dataset[video], index).sum()) == 12


@pytest.mark.parametrize("name", ["Fall_2_Übung_links", "Fall_2_%C3%9Cbung_links", "Fall 2 Übung (links)"])
def test_blanks_and_brackets_that_label_studio_takes_away(root: Path, name: str) -> None:
    (root / "videos/b").rename(root / "videos/Fall 2 Übung (links)")
    write(root / "coco.json", content(("grasper", SQUARE), name=f"images/cb0618f6-{name}__frame_000001.png"))
    write_file(root, "coco.json")
    assert load_dataset(root)["Fall 2 Übung (links)"].with_mask == [1]


def test_a_label_that_names_a_class_is_that_class_whatever_its_id(root: Path) -> None:
    """COCO counts its categories, and whoever painted the images counted theirs."""
    (root / "masks/a").mkdir(parents=True)
    Image.fromarray(np.full((6, 8), 11, np.uint8)).save(root / "masks/a/0002.png")
    labels = ("grasper", "clip", "tool", "blurred", "background")  # 10 to 14
    for number, label in enumerate(labels, 1):
        shape = content((label, SQUARE), name=f"b/{number:04}.png", labels=labels)
        Image.new("RGB", (8, 6)).save(root / f"videos/b/{number:04}.png")
        write(root / f"masks/{label}.json", shape)
    classes = [
        {"name": "clip", "value": [10, 14]},
        {"name": "grasper", "value": 11},
        {"name": "hook", "value": 12, "merge": "tool"},
        {"name": "fog", "value": 13},
        {"name": "blurred", "value": 15, "ignore": True},
    ]
    write_file(root, "masks", classes=classes)
    dataset = load_dataset(root)
    assert dataset.classes.names == ("background", "clip", "grasper", "tool", "fog")
    assert [int(dataset.read_mask(dataset["b"], index)[2, 3]) for index in range(5)] == [2, 1, 3, IGNORE, 0]
    assert dataset.read_mask(dataset["a"], 1).min() == 2  # the image's 11


def test_a_label_that_a_class_has_as_its_value_is_that_class(root: Path) -> None:
    write(root / "coco.json", content(("grasper", SQUARE)))
    write_file(root, "coco.json", classes=[{"name": "grasper", "value": "clip"}, {"name": "hook", "value": "grasper"}])
    dataset = load_dataset(root)
    assert dataset.classes.names[dataset.read_mask(dataset["a"], 0)[2, 3]] == "hook"


def test_as_zip(root: Path) -> None:
    with zipfile.ZipFile(root / "task.zip", "w") as archive:
        archive.writestr("annotations/instances_default.json", json.dumps(content(("grasper", SQUARE))))
    write_file(root, "task.zip")
    assert load_dataset(root)["a"].with_mask == [0]


def test_an_image_without_shapes_is_not_labelled(root: Path) -> None:
    write(root / "coco.json", content())
    write_file(root, "coco.json")
    dataset = load_dataset(root)
    assert not any(video.with_mask for video in dataset)
    assert dataset.notes == ["coco.json: of 1 image, 1 without any shape: taken as not labelled."]
    write(root / "coco.json", content(("grasper", {"size": [6, 8], "counts": [48]})))
    dataset = load_dataset(root)
    assert not dataset.notes
    assert not dataset.read_mask(dataset["a"], 0).any()  # background throughout


def test_an_export_that_labels_nothing_is_a_problem(root: Path) -> None:
    """Label Studio writes it before anything is drawn."""
    write(root / "masks/result.json", content(labels=()))
    write_draft(root)
    problem = check(root, progress=False, workers=1).problems[0]
    assert (problem.code, problem.severity, problem.first) == ("no-label", "fatal", "masks")
    with pytest.raises(UserError, match="no frame is labelled in them"):
        require_labels(load_dataset(root))


def box_alone() -> dict[str, Any]:
    """A file whose annotations have no shape, in each of the ways that tools write it."""
    value = content(("grasper", []), ("clip", [[]]), ("grasper", None))
    del value["annotations"][2]["segmentation"]
    return value


def test_a_file_of_boxes_is_refused(root: Path) -> None:
    """They were taken for frames that show nothing: a training on them learnt background."""
    write(root / "masks/coco.json", box_alone())
    write_file(root, "masks")
    report = check(root, progress=False, workers=1)
    problem = report.problems[0]
    assert (problem.code, problem.severity, problem.count) == ("boxes-only", "fatal", 3)
    assert problem.what == "3 annotations left out: without a shape"
    assert problem.first == "masks/coco.json: it has 3 boxes or lines, no shapes"
    assert not {"no-masks", "no-dataset-file"} & {problem.code for problem in report.problems}
    with pytest.raises(
        UserError, match=r"coco\.json: it has 3 boxes or lines, no shapes; export the annotations as polygons"
    ):
        load_dataset(root).require_clear_masks()


@pytest.mark.parametrize(
    ("above", "covered"),
    [(("clip", [[0, 0, 8, 0, 8, 6, 0, 6]]), 1), (("grasper", [[0, 0, 8, 0, 8, 6, 0, 6]]), 0), (("clip", SQUARE), 1)],
)
def test_shapes_that_later_ones_cover_are_told_of(root: Path, above: Any, covered: int) -> None:
    write(root / "coco.json", content(("grasper", SQUARE), above, ("grasper", [[1, 1, 4, 4]])))
    write_file(root, "coco.json", classes=[{"name": "grasper"}, {"name": "clip"}])
    found = [found for found in check(root, progress=False, workers=1).problems if found.code == "covered-shape"]
    assert [(problem.severity, problem.count) for problem in found] == [("warning", covered)] * covered
    assert all(problem.what == "1 shape wholly covered by later ones of other classes" for problem in found)


def test_a_stray_image_beside_an_export_is_named(tmp_path: Path) -> None:
    """Masks that are images need values, which classes of labels do not have."""
    (tmp_path / "videos/a").mkdir(parents=True)
    Image.new("RGB", (8, 6)).save(tmp_path / "videos/a/0001.png")
    write(tmp_path / "masks/coco.json", content(("grasper", SQUARE)))
    write_draft(tmp_path)
    stray = tmp_path / "masks/screenshot.png"
    Image.fromarray(np.full((6, 8), 7, np.uint8)).save(stray)
    with pytest.raises(UserError, match=f"masks that are images .*{stray}"):
        load_dataset(tmp_path)
    stray.unlink()
    assert load_dataset(tmp_path)["a"].with_mask == [0]
