import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from two_videos import write_file

from suture.checks.check import check
from suture.checks.draft import write_draft
from suture.core.errors import UserError
from suture.data.classes import UNPAINTED
from suture.data.datasets import load_dataset
from suture.data.formats import open_export

SQUARE = [[2, 1], [6, 1], [6, 4], [2, 4]]
WHOLE = [[0, 0], [8, 0], [8, 6], [0, 6]]


def shape(label: str, points: Any = SQUARE, kind: str = "polygon", **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "group_id": None, "shape_type": kind, "flags": {}} | more


def content(*shapes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A LabelMe file of an image of 8 × 6 pixels."""
    head = {"version": "5.5.0", "flags": {}, "imagePath": "", "imageData": None}
    return head | {"shapes": list(shapes), "imageHeight": 6, "imageWidth": 8} | more


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def read(path: Path) -> np.ndarray:
    return open_export(path).mask(path.stem, {"grasper": 1, "clip": 2}, None).read(by_color=False)


def brushed(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8) * 255).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("kind", ["polygon", None])
def test_polygons(tmp_path: Path, kind: str) -> None:
    ids = read(write(tmp_path / "0001.json", content(shape("grasper", kind=kind))))
    expected = np.full((6, 8), UNPAINTED)
    expected[1:4, 2:6] = 1
    assert (ids == expected).all()


def test_brushed_masks_lie_where_they_were_brushed(tmp_path: Path) -> None:
    pixels = np.array([[1, 0, 1], [0, 1, 0]], bool)
    entry = shape("grasper", [[3, 2], [5, 3]], "mask", mask=brushed(pixels))
    ids = read(write(tmp_path / "0001.json", content(entry)))
    assert ((ids == 1)[2:4, 3:6] == pixels).all()
    assert (ids == 1).sum() == 3


def test_circles(tmp_path: Path) -> None:
    value = content(shape("clip", [[50, 40], [50, 60]], "circle"), imageHeight=100, imageWidth=100)
    ids = read(write(tmp_path / "0001.json", value))
    y, x = np.mgrid[:100, :100] + 0.5
    circle = np.hypot(x - 50, y - 40) < 20
    assert ((ids == 2) != circle).sum() < 30  # of 1,257


BRUSHED = shape("clip", [[0, 0], [1, 1]], "mask")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (content(imageHeight=None), r"is not a LabelMe file \(imageHeight: input should be a valid integer\)"),
        ({key: value for key, value in content().items() if key != "imageWidth"}, "imageWidth: field required"),
        (content(imageHeight=60000, imageWidth=60000), "impossible"),
        (content(imageHeight=-6, imageWidth=-8), "impossible"),
        (content(shapes={"a": 1}), "shapes: input should be a valid list"),
        (content(shape("grasper", [1, 2, 3])), r"shapes\.0\.points\.0: input should be a valid tuple"),
        (content(shape("grasper", [["a", "b"]] * 3)), r"shapes\.0\.points\.0\.0: input should be a valid number"),
        (content(shape("grasper", kind=["polygon"])), r"shapes\.0\.shape_type: input should be a valid string"),
        (content(shape("grasper", [[1, 2]], "circle")), "cannot be drawn"),
        (content({"points": SQUARE}), "cannot be drawn"),
        (content({"points": SQUARE, "label": None}), r"cannot be drawn \(no label\)"),
        (content(shape("clip", [[7, 5], [9, 6]], "mask", mask=brushed(np.ones((2, 3))))), "leaves the image"),
        (content(shape("clip", [[-1, 0], [9, 6]], "mask", mask=brushed(np.ones((2, 3))))), "leaves the image"),
        (content(BRUSHED | {"mask": "AAAA"}), "a brushed mask is not an image"),
        (content(BRUSHED | {"mask": "A"}), "cannot be drawn"),
        (content(BRUSHED), "cannot be drawn"),
        (content(BRUSHED | {"points": [], "mask": brushed(np.ones((2, 3)))}), "cannot be drawn"),
    ],
)
def test_files_that_are_not_labelmes_are_named(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"0001\.json.*{message}"):
        open_export(write(tmp_path / "0001.json", value))


@pytest.mark.parametrize(
    ("place", "masks", "video", "index"),
    [
        ("masks/a/0001.json", "masks", "a", 0),
        ("masks/b__frame_000001.json", "masks", "b", 1),
        ("labels/0002.JSON", {"b": "labels"}, "b", 1),
        ("0003.json", {"a": "0003.json"}, "a", 2),
        ("videos/b/0003.json", "videos/{video}/{frame}.json", "b", 2),
    ],
)
def test_in_a_dataset(root: Path, place: str, masks: Any, video: str, index: int) -> None:
    write(root / place, content(shape("grasper")))
    write_file(root, masks)
    dataset = load_dataset(root)
    assert {video.id: video.with_mask for video in dataset if video.with_mask} == {video: [index]}
    assert int(dataset.read_mask(dataset[video], index).sum()) == 12
    assert not dataset.notes


def test_copies_of_the_frames_beside_the_files_are_no_masks(root: Path) -> None:
    write(root / "masks/a/0001.json", content(shape("grasper")))
    for name in ("0001", "0002"):
        (root / f"masks/a/{name}.png").write_bytes((root / f"videos/a/{name}.png").read_bytes())
    write_file(root, "masks")
    dataset = load_dataset(root)
    assert dataset["a"].with_mask == [0]
    assert not dataset.doubtful_masks


def test_as_zip(root: Path) -> None:
    with zipfile.ZipFile(root / "labels.zip", "w") as archive:
        for name in ("a/0001", "b/0003"):
            archive.writestr(f"{name}.json", json.dumps(content(shape("grasper"))))
    write_file(root, "labels.zip")
    assert {video.id: video.with_mask for video in load_dataset(root)} == {"a": [0], "b": [2]}


def test_beside_frames_in_the_root(tmp_path: Path) -> None:
    for name in ("1", "2", "sub/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(tmp_path / f"{name}.png")
    write(tmp_path / "1.json", content(shape("grasper")))
    assert yaml.safe_load(write_draft(tmp_path).read_text())["masks"] == "{frame}.json"
    dataset = load_dataset(tmp_path)
    assert {video.id: video.with_mask for video in dataset} == {tmp_path.name: [0], "sub": []}
    assert not dataset.notes


def test_beside_coco_in_one_folder(root: Path) -> None:
    polygon = {"image_id": 1, "category_id": 1, "segmentation": [[2, 1, 6, 1, 6, 4, 2, 4]]}
    image = {"id": 1, "file_name": "b/0001.png", "width": 8, "height": 6}
    coco = {"images": [image], "categories": [{"id": 1, "name": "shapes"}], "annotations": [polygon]}
    write(root / "masks/round1.json", coco)
    write(root / "masks/a/0001.json", content(shape("grasper")))
    write_file(root, "masks", classes=[{"name": "grasper"}, {"name": "shapes"}])
    assert {video.id: video.with_mask for video in load_dataset(root)} == {"a": [0], "b": [0]}


def test_boxes_are_told_of(root: Path) -> None:
    box = shape("grasper", [[1, 1], [4, 4]], "rectangle")
    write(root / "masks/a/0001.json", content(shape("grasper"), box))
    write_file(root, "masks")
    problem = next(found for found in check(root, progress=False, workers=1).problems if found.code == "boxes")
    assert problem.first == "masks: it has 1 box or line, 1 shape"
    write(root / "masks/a/0001.json", content(box))
    problem = check(root, progress=False, workers=1).problems[0]
    assert (problem.code, problem.severity, problem.count) == ("boxes-only", "fatal", 1)


def test_what_is_wrong_with_labels_is_told(root: Path) -> None:
    """A frame that is not there, one of another size, a label that no class names, and a shape that another covers."""
    write(root / "masks/a/0001.json", content(shape("grasper"), shape("clip", WHOLE)))
    write(root / "masks/a/0002.json", content(shape("clip")))
    write(root / "masks/a/0003.json", content(shape("grasper"), imageHeight=12))
    write(root / "masks/a/0009.json", content(shape("grasper")))
    write_file(root, "masks", classes=[{"name": "grasper"}, {"name": "clip"}])
    found = {problem.code: problem for problem in check(root, progress=False, workers=1).problems}
    assert found["mask-without-frame"].first == "masks/a/0009.json"
    assert found["mask-size"].first == "masks/a/0003.json (8×12 on a frame of 8×6)"
    assert (found["covered-shape"].count, found["covered-shape"].first) == (1, "masks/a/0001.json")
    write_file(root, "masks")
    dataset = load_dataset(root)
    with pytest.raises(UserError, match=r"a/0002\.json holds the value clip \(12 pixels\)"):
        dataset.read_mask(dataset["a"], 1)


@pytest.mark.parametrize(("place", "masks"), [("labels/{}", "labels"), ("videos/{}", "videos/{video}/{frame}.json")])
def test_the_draft_finds_them(root: Path, place: str, masks: str) -> None:
    for frame in ("a/0001", "b/0002"):
        write(root / f"{place.format(frame)}.json", content(shape("grasper"), shape("clip", WHOLE)))
    text = write_draft(root).read_text()
    assert yaml.safe_load(text)["masks"] == masks
    assert [entry["name"] for entry in yaml.safe_load(text)["classes"]] == ["grasper", "clip"]
    assert {video.id: video.with_mask for video in load_dataset(root)} == {"a": [0], "b": [1]}


def test_other_json_beside_frames_is_none_of_theirs(root: Path) -> None:
    write(root / "videos/a/0001.json", {"exposure": 5})
    text = write_draft(root).read_text()
    assert "no masks were found" in text
    assert "1 file beside frames" in load_dataset(root).notes[0]


@pytest.mark.parametrize("more", [{"flags": {"images": False}}, {"imagePath": 3}])
def test_words_of_coco_in_it(tmp_path: Path, more: dict[str, Any]) -> None:
    path = write(tmp_path / "0001.json", content(shape("images"), **more))
    assert open_export(path).labels == {"images": "images"}
