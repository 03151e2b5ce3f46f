"""`suture check --write`: the draft loads back, marks its guesses, and never overwrites unasked."""

import json
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from suture.checks.check import check
from suture.checks.draft import draft_dataset_file, guess_cases, guess_split, said_of_videos, write_draft
from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.images import read_image
from suture.data.video_index import VideoEntry

WIDTH, HEIGHT = 64, 48


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels[..., ::-1] if pixels.ndim == 3 else pixels)


def frames(root: Path, *videos: str, count: int = 3) -> None:
    for seed, video in enumerate(videos):
        for index in range(count):
            blobs = np.random.default_rng([seed, index]).integers(60, 220, (6, 8, 3), np.uint8)
            write(root / video / f"{index:03}.png", cv2.resize(blobs, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC))


def masks(root: Path, *videos: str, values: np.ndarray, count: int = 3) -> None:
    for video in videos:
        for index in range(count):
            mask = np.zeros((HEIGHT, WIDTH), np.intp)
            for number in range(1, len(values)):
                mask[number * 6 : number * 6 + 6, 10:50] = number
            write(root / video / f"{index:03}.png", values[mask])


def clips(*paths: str) -> list[VideoEntry]:
    return [VideoEntry(tuple(path.split("/")), Path(), {}) for path in paths]


def add_line(root: Path, line: str) -> None:
    path = root / "dataset.yaml"
    path.write_text(path.read_text() + line + "\n")


def test_many_frames_may_be_taken_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames(tmp_path / "videos", "one", "two", count=5)
    masks(tmp_path / "masks", "one", values=np.array([1, 2], np.uint8), count=2)
    assert "take_every:" not in draft_dataset_file(tmp_path)
    monkeypatch.setattr("suture.checks.draft._MANY", 3)
    write_draft(tmp_path)
    assert "# take_every: 3  # to take one of 3 frames: 10 frames take long" in (tmp_path / "dataset.yaml").read_text()
    assert len(load_dataset(tmp_path)["two"].usable) == 5  # it is a hint, no guess
    add_line(tmp_path, "take_every: 3")
    write_draft(tmp_path, force=True)
    assert "take_every: 3  # kept" in (tmp_path / "dataset.yaml").read_text()
    assert {video.id: video.usable for video in load_dataset(tmp_path)} == {"one": [0, 1, 3], "two": [0, 3]}


def test_a_mask_that_fits_two_videos_does_not_hinder_a_draft(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "one", "two")
    masks(tmp_path / "masks", "one", "two", values=np.array([1, 2], np.uint8))
    (tmp_path / "masks/one/000.png").rename(tmp_path / "masks/000.png")
    write_draft(tmp_path)
    assert [problem.code for problem in check(tmp_path, progress=False, workers=1).problems] == ["doubtful-mask"]


def test_masks_among_the_frames(tmp_path: Path) -> None:
    """As CholecSeg8k is downloaded: of three kinds of masks the draft takes the one of ids that paints every pixel."""
    frames(tmp_path, "video01/video01_00080", "video01/video01_00160")
    for frame in list(tmp_path.rglob("*.png")):
        ids = np.full((HEIGHT, WIDTH), 50, np.uint8)
        ids[10:20, 10:20] = 11
        unsure = ids.copy()
        unsure[ids == 11] = 0
        write(frame.with_stem(f"{frame.stem}_color_mask"), np.stack([ids, ids // 2, ids], axis=2))
        write(frame.with_stem(f"{frame.stem}_mask"), unsure)
        write(frame.with_stem(f"{frame.stem}_watershed_mask"), np.stack([ids] * 3, axis=2))
    found = check(tmp_path, progress=False, workers=1)
    assert found.summary.frames == 6
    assert [(problem.code, problem.count) for problem in found.problems] == [("no-dataset-file", 18)]
    path = write_draft(tmp_path)
    assert "masks: '*_watershed_mask.png'  # guess; also found: *_color_mask.png, *_mask.png" in path.read_text()
    report = check(tmp_path, progress=False, workers=1)
    assert (report.summary.frames, report.summary.labelled, report.fatal) == (6, 6, False)
    again = draft_dataset_file(tmp_path)
    assert "masks: '*_watershed_mask.png'  # guess, kept" in again


@pytest.mark.parametrize(("inside", "beside"), [("frames", "masks"), ("", "masks"), ("rgb", "labels")])
def test_masks_in_the_folder_of_each_video(tmp_path: Path, inside: str, beside: str) -> None:
    operations = ("opA", "opB", "opC")
    frames(tmp_path, *(f"{name}/{inside}".rstrip("/") for name in operations))
    masks(tmp_path, *(f"{name}/{beside}" for name in operations), values=np.array([1, 2], np.uint8))
    found = check(tmp_path, progress=False, workers=1)
    assert (len(found.summary.videos), found.summary.frames) == (3, 9)
    assert [(problem.code, problem.first) for problem in found.problems] == [("no-dataset-file", f"opA/{beside}")]
    content = yaml.safe_load(write_draft(tmp_path).read_text())
    assert content["masks"] == {f"{name}_{inside}".rstrip("_"): f"{name}/{beside}" for name in operations}
    report = check(tmp_path, progress=False, workers=1)
    assert (report.summary.frames, report.summary.labelled, report.fatal) == (9, 9, False)


def test_of_two_folders_of_masks_none_is_guessed(tmp_path: Path) -> None:
    frames(tmp_path, "opA/frames", "opB/frames")
    for place in ("masks", "labels"):
        masks(tmp_path, f"opA/{place}", f"opB/{place}", values=np.array([1, 2], np.uint8))
    assert "# masks: masks  # question" in draft_dataset_file(tmp_path)


def test_coco_among_the_frames(tmp_path: Path) -> None:
    """As Endoscapes is downloaded."""
    frames(tmp_path, "train", "test")
    for video in ("train", "test"):
        polygon = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[2, 1, 6, 1, 6, 4, 2, 4]]}
        image = {"id": 1, "file_name": "001.png", "width": WIDTH, "height": HEIGHT}
        coco = {"images": [image], "categories": [{"id": 1, "name": "duct"}], "annotations": [polygon]}
        (tmp_path / video / "annotation_coco.json").write_text(json.dumps(coco))
    (tmp_path / "train" / "camera.json").write_text("{}")
    content = yaml.safe_load(write_draft(tmp_path).read_text())
    assert content["masks"] == {"train": "train/annotation_coco.json", "test": "test/annotation_coco.json"}
    dataset = load_dataset(tmp_path)
    assert [video.with_mask for video in dataset] == [[1], [1]]
    assert len(dataset.notes) == 1
    assert "1 JSON file among the frames not read (first: train/camera.json)" in dataset.notes[0]


def test_a_folder_of_frames_and_id_masks(tmp_path: Path) -> None:
    videos = ("case1_1", "case1_2", "case2", "case3", "case4")
    frames(tmp_path / "videos", *videos)
    masks(tmp_path / "masks", *videos, values=np.array([0, 1, 7, 255], np.uint8))
    path = write_draft(tmp_path)
    text = path.read_text()
    content = yaml.safe_load(text)
    assert [(entry["name"], entry["value"]) for entry in content["classes"]] == [
        ("class_1", 1),
        ("class_7", 7),
        ("ignored", 255),
    ]
    assert content["cases"] == {"case1": ["case1_1", "case1_2"]}
    assert "unpainted" not in content
    assert "# question: what do unpainted pixels mean (the value 0" in text
    assert text.count("# guess") >= 8

    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("class_1", "class_7")
    assert {video.split for video in dataset} == {"train", "test"}
    report = check(dataset, progress=False, workers=1)
    assert [problem.code for problem in report.problems] == ["unpainted", "guessed-case"]
    add_line(tmp_path, "unpainted: ignore")
    path.write_text(path.read_text().replace("[case1_1, case1_2]  # guess", "[case1_1, case1_2]"))
    assert check(tmp_path, progress=False, workers=1).problems == []


@pytest.mark.parametrize("white", [255, (255, 255, 255)])
def test_white_alone_on_black_is_a_class(tmp_path: Path, white: int | tuple[int, ...]) -> None:
    frames(tmp_path / "videos", "a", "b")
    masks(tmp_path / "masks", "a", "b", values=np.array([np.zeros_like(white), white], np.uint8))
    text = write_draft(tmp_path).read_text()
    assert "name: foreground" in text
    assert "# guess: the name; 7.81%" in text
    add_line(tmp_path, "unpainted: background")
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("background", "foreground")
    assert check(dataset, progress=False, workers=1).problems == []


@pytest.mark.parametrize(("said", "name"), [(0, "foreground"), (1, "ignored")])
def test_white_beside_classes_that_the_file_has(tmp_path: Path, said: int, name: str) -> None:
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([0, 255], np.uint8))
    (tmp_path / "dataset.yaml").write_text(f"classes: [{{name: tissue, value: {said}}}]")
    classes = yaml.safe_load(write_draft(tmp_path, force=True).read_text())["classes"]
    assert [entry["name"] for entry in classes] == ["tissue", name]


def test_a_colour_that_is_almost_another_is_in_doubt(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "one")
    masks(tmp_path / "masks", "one", values=np.array([(0, 0, 0), (0, 255, 0), (0, 200, 200)], np.uint8))
    path = tmp_path / "masks/one/000.png"
    drifted = read_image(path)
    drifted[6, 10:15] = (4, 250, 0)
    write(path, drifted)
    lines = draft_dataset_file(tmp_path, workers=1).splitlines()
    doubted = [line for line in lines if "a class at all?" in line]
    assert len(doubted) == 1
    assert "value: [4, 250, 0]" in doubted[0]
    assert "It is almost [0, 255, 0]: anti-aliased or compressed masks?" in doubted[0]


def test_colour_masks(tmp_path: Path) -> None:
    frames(tmp_path / "frames", "a", "b", "c")
    masks(tmp_path / "labels", "a", "b", "c", values=np.array([(9, 9, 9), (0, 255, 0), (255, 0, 4)], np.uint8))
    write_draft(tmp_path)
    dataset = load_dataset(tmp_path)
    assert set(dataset.classes.values) == {(9, 9, 9), (0, 255, 0), (255, 0, 4)}
    assert dataset.classes.colors[0] == (0, 255, 0)
    assert check(dataset, progress=False, workers=1).problems == []


def test_anti_aliased_masks_do_not_become_thousands_of_classes(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    gradient = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    write(tmp_path / "masks/a/000.png", gradient)
    text = draft_dataset_file(tmp_path)
    assert "look anti-aliased or compressed" in text
    assert len(yaml.safe_load(text)["classes"]) == 1, "one stands in, so that the masks can be checked"


def test_few_colours_of_smooth_edges_are_no_classes_either(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([(0, 0, 0), (0, 255, 0), (255, 0, 0)], np.uint8))
    for path in (tmp_path / "masks").rglob("*.png"):
        write(path, cv2.GaussianBlur(read_image(path), (5, 5), 1.5))
    text = draft_dataset_file(tmp_path)
    assert re.search("No classes are drafted from [1-5][0-9] colours: the masks look anti-aliased", text)
    assert len(yaml.safe_load(text)["classes"]) == 1


def test_compressed_masks_give_no_classes_and_leave_no_trace(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a", "b")
    colors = np.array([(0, 0, 0), (0, 255, 0), (255, 0, 0)], np.uint8)
    masks(tmp_path / "masks", "a", "b", values=colors)
    clean = {path: read_image(path) for path in (tmp_path / "masks").rglob("*.png")}
    for path, mask in clean.items():
        path.unlink()
        write(path.with_suffix(".jpg"), mask)
    text = write_draft(tmp_path).read_text()
    assert len(yaml.safe_load(text)["classes"]) == 1
    assert "# No classes are drafted from 6 masks saved with lossy compression (JPEG), first 000.jpg: export" in text
    report = check(tmp_path, progress=False, workers=1)
    assert [problem.code for problem in report.problems][:2] == ["jpeg-mask", "unpainted"]
    for path, mask in clean.items():
        path.with_suffix(".jpg").unlink()
        write(path, mask)
    text = write_draft(tmp_path, force=True).read_text()
    drafted = yaml.safe_load(text)["classes"]
    assert [(one["name"], one["value"]) for one in drafted] == [("class_1", [0, 255, 0]), ("class_2", [255, 0, 0])]
    assert "a class at all?" not in text
    assert "lossy" not in text


def test_a_value_that_stood_in_is_drafted_like_the_others(tmp_path: Path) -> None:
    """Else what is to be left out would be learnt as a class, as it was the most frequent value."""
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([255, 0, 1, 255, 2], np.uint8))
    clean = {path: read_image(path) for path in (tmp_path / "masks").rglob("*.png")}
    for path in clean:
        path.rename(path.with_suffix(".jpg"))  # a name is enough to distrust the values
    (entry,) = yaml.safe_load(write_draft(tmp_path).read_text())["classes"]
    assert entry["name"] == "stand_in"
    for path in clean:
        path.with_suffix(".jpg").rename(path)
    drafted = yaml.safe_load(write_draft(tmp_path, force=True).read_text())["classes"]
    assert [entry["name"] for entry in drafted] == ["class_1", "class_2", "ignored"]


def test_a_class_is_not_gone_that_compressed_masks_may_show(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a", "b")
    masks(tmp_path / "masks", "a", values=np.array([0, 1], np.uint8))
    masks(tmp_path / "masks", "b", values=np.array([0, 2], np.uint8))
    path = write_draft(tmp_path)
    path.write_text(path.read_text().replace("class_2", "vessel"))
    for image in (tmp_path / "masks/b").iterdir():
        image.rename(image.with_suffix(".jpg"))
    assert "name: vessel, value: 2" in write_draft(tmp_path, force=True).read_text()


def test_classes_are_drafted_from_the_masks_that_are_not_compressed(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a", "b")
    masks(tmp_path / "masks", "a", "b", values=np.array([(0, 0, 0), (0, 255, 0), (255, 0, 0)], np.uint8))
    path = tmp_path / "masks/b/001.png"
    write(path.with_suffix(".jpg"), read_image(path))
    path.unlink()
    text = draft_dataset_file(tmp_path)
    assert [entry["value"] for entry in yaml.safe_load(text)["classes"]] == [[0, 255, 0], [255, 0, 0]]
    assert "the colours found in 5 masks" in text
    assert "from 1 mask saved with lossy compression (JPEG), first 001.jpg" in text


def test_guesses_that_are_gone_cast_no_doubt_on_others(tmp_path: Path) -> None:
    """As of colours that drifted, in masks that were drawn anew; an ignored value goes likewise."""
    frames(tmp_path / "videos", "a")
    for gone, now in ((np.array([[0, 0, 0], [254, 0, 0]]), np.array([[0, 0, 0], [255, 0, 0]])), ([0, 1, 255], [0, 1])):
        masks(tmp_path / "masks", "a", values=np.array(gone, np.uint8))
        (tmp_path / "dataset.yaml").unlink(missing_ok=True)
        write_draft(tmp_path)
        masks(tmp_path / "masks", "a", values=np.array(now, np.uint8))
        text = write_draft(tmp_path, force=True).read_text()
        drafted = yaml.safe_load(text)["classes"]
        assert [(one["name"], one["value"]) for one in drafted] == [("class_1", np.array(now)[1].tolist())]
        assert "a class at all?" not in text


def test_a_colour_drafted_later_has_a_name_of_its_own(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    for colors in ([(0, 0, 0), (0, 255, 0)], [(0, 0, 0), (0, 255, 0), (255, 0, 0)]):
        masks(tmp_path / "masks", "a", values=np.array(colors, np.uint8))
        write_draft(tmp_path, force=True)
    assert load_dataset(tmp_path).classes.names == ("class_1", "class_2")


def test_masks_in_which_nothing_is_painted(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([0], np.uint8))
    assert "# question: nothing is painted in 3 masks" in write_draft(tmp_path).read_text()
    with pytest.raises(UserError, match="names masks but no classes: say under classes"):
        load_dataset(tmp_path)


def test_a_cvat_export_gives_its_labels(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    mask = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    mask[:20] = (250, 50, 83)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("labelmap.txt", "# label:color\nbackground:0,0,0::\nneedle driver:250,50,83::\n")
        archive.writestr("SegmentationClass/001.png", cv2.imencode(".png", mask[..., ::-1])[1].tobytes())
    content = yaml.safe_load(draft_dataset_file(tmp_path))
    assert content["masks"] == "a.zip"
    assert [entry["name"] for entry in content["classes"]] == ["needle driver"]
    write_draft(tmp_path)
    assert load_dataset(tmp_path)["a"].with_mask == [1]


def test_a_coco_file_gives_its_categories(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    coco = {
        "images": [{"id": 1, "file_name": "a/002.png", "width": WIDTH, "height": HEIGHT}],
        "categories": [{"id": 4, "name": "clip applier"}],
        "annotations": [{"image_id": 1, "category_id": 4, "segmentation": [[1, 1, 30, 1, 30, 30]]}],
    }
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    write_draft(tmp_path)
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("clip applier",)
    assert dataset["a"].with_mask == [2]


@pytest.mark.parametrize(
    ("values", "example"),
    [([0, 7], "[7, liver]"), ([[0, 0, 0], [9, 8, 7]], "[[9, 8, 7], liver]")],
)
def test_images_and_labels_in_one_folder(tmp_path: Path, values: list, example: str) -> None:
    """Which value is which label nobody but the user knows: the draft asks, and the answer is kept."""
    frames(tmp_path / "videos", "a", "b")
    masks(tmp_path / "masks", "a", values=np.array(values, np.uint8))
    shapes = [{"label": label, "points": [[1, 1], [30, 1], [30, 30]]} for label in ("liver", "fat")]
    labelme = {"shapes": shapes, "imageWidth": WIDTH, "imageHeight": HEIGHT}
    (tmp_path / "masks/b").mkdir()
    (tmp_path / "masks/b/001.json").write_text(json.dumps(labelme))
    text = write_draft(tmp_path).read_text()
    assert "to which of these classes do the labels of the annotation tool belong (liver and fat)?" in text
    assert f"beside its class's value, as {example};" in text
    answered = re.sub("value: [^c]*, color", f"value: [{example[1:-1]}, fat], color", text)
    (tmp_path / "dataset.yaml").write_text(f"{answered}\nunpainted: background\n")
    assert "labels of the annotation tool" not in write_draft(tmp_path, force=True).read_text()
    dataset = load_dataset(tmp_path)
    assert {video.id: video.with_mask for video in dataset} == {"a": [0, 1, 2], "b": [1]}
    assert dataset.read_mask(dataset["b"], 1).max() == 1


def test_labels_that_differ_in_capitals_only_are_asked_about(tmp_path: Path) -> None:
    """By the draft, and by the check until they are one class."""
    frames(tmp_path / "videos", "a")
    for index, label in enumerate(("Grasper", "grasper", "liver")):
        entry = {"label": label, "points": [[1, 1], [30, 1], [30, 30]]}
        labelme = {"shapes": [entry], "imageWidth": WIDTH, "imageHeight": HEIGHT}
        (tmp_path / "masks/a").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"masks/a/{index:03}.json").write_text(json.dumps(labelme))
    path = write_draft(tmp_path)
    text = f"{path.read_text()}\nunpainted: background\n"
    assert text.count("# question: are Grasper and grasper one class? If so, write merge: Grasper into") == 1
    path.write_text(text)
    (problem,) = [one for one in check(tmp_path, progress=False, workers=1).problems if one.code == "class-alike"]
    assert problem.what == "2 classes whose names differ in capitals only: Grasper and grasper"
    assert problem.fix == "if they are one, write `merge: Grasper` in dataset.yaml into the line of grasper"
    path.write_text(text.replace("name: grasper,", "name: grasper, merge: Grasper,"))
    report = check(tmp_path, progress=False, workers=1)
    assert "class-alike" not in {one.code for one in report.problems}
    assert report.class_table["Grasper"]["train"].frames == 2


def test_guessed_classes_that_no_mask_holds_any_more_are_forgotten(tmp_path: Path) -> None:
    """As of smoothed masks that were drawn anew; what was answered stays."""
    frames(tmp_path / "videos", "a")
    smoothed = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    smoothed[:8, :, 0] = np.arange(8)[:, None] * 9
    write(tmp_path / "masks/a/000.png", smoothed)
    path = write_draft(tmp_path)
    drafted = yaml.safe_load(path.read_text())["classes"]
    assert [entry["value"] for entry in drafted] == [[9 * step, 0, 0] for step in range(1, 8)]
    path.write_text(re.sub(r"(name: )class_3(.*\})  # .*", r"\1clip\2", path.read_text()))
    smoothed[:8, :, 0] = 63
    write(tmp_path / "masks/a/000.png", smoothed)
    drafted = yaml.safe_load(write_draft(tmp_path, force=True).read_text())["classes"]
    assert [(entry["name"], entry["value"]) for entry in drafted] == [("clip", [27, 0, 0]), ("class_7", [63, 0, 0])]


def test_a_class_drafted_later_has_a_colour_of_its_own(tmp_path: Path) -> None:
    """Also where lines of the first draft are gone, or have other colours now."""
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([0, 1, 2, 3], np.uint8))
    path = write_draft(tmp_path)
    first = {entry["name"]: entry["color"] for entry in yaml.safe_load(path.read_text())["classes"]}
    text = "".join(line for line in path.read_text().splitlines(True) if "class_1" not in line)
    path.write_text(text.replace(str(first["class_2"]), "[1, 159, 114]"))  # almost that of class_3
    colors = [entry["color"] for entry in yaml.safe_load(write_draft(tmp_path, force=True).read_text())["classes"]]
    assert colors == [[1, 159, 114], first["class_3"], first["class_1"]]


def test_an_image_beside_classes_of_labels(tmp_path: Path) -> None:
    """Drafted from labels alone, they have no values: message and draft say where to write them."""
    frames(tmp_path / "videos", "a", "b")
    shapes = [{"label": label, "points": [[1, 1], [30, 1], [30, 30]]} for label in ("liver", "fat")]
    (tmp_path / "masks/b").mkdir(parents=True)
    labelme = {"shapes": shapes, "imageWidth": WIDTH, "imageHeight": HEIGHT}
    (tmp_path / "masks/b/001.json").write_text(json.dumps(labelme))
    path = write_draft(tmp_path)
    path.write_text(f"{path.read_text()}\nunpainted: background\n")
    masks(tmp_path / "masks", "a", values=np.array([0, 7], np.uint8))
    with pytest.raises(
        UserError, match=r"the classes liver and fat have no value for .* under classes .* as `value: 1`, "
    ):
        load_dataset(tmp_path)
    text = write_draft(tmp_path, force=True).read_text()
    assert "# question: which values have liver and fat in the images?" in text
    assert "as {value: 7}, and remove the line drafted for it;" in text
    answered = text.replace("name: liver,", "name: liver, value: 7,").replace("name: fat,", "name: fat, value: 8,")
    path.write_text("\n".join(line for line in answered.splitlines() if "class_7" not in line))
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("background", "liver", "fat")
    assert {video.id: video.with_mask for video in dataset} == {"a": [0, 1, 2], "b": [1]}
    assert dataset.read_mask(dataset["a"], 0).max() == 1
    assert "question: which values" not in write_draft(tmp_path, force=True).read_text()


def test_a_folder_without_masks(tmp_path: Path) -> None:
    frames(tmp_path, "a", "b")
    text = write_draft(tmp_path).read_text()
    assert "# question: no masks were found" in text
    assert [video.id for video in load_dataset(tmp_path)] == ["a", "b"]


def test_names_that_need_quotes_survive(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "2023-01-14", "007", "yes", "a: b # c")
    write_draft(tmp_path)
    assert {video.id for video in load_dataset(tmp_path)} == {"2023-01-14", "007", "yes", "a: b # c"}


def test_the_view_is_found_and_written_down(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a", "b")
    for path in (tmp_path / "videos/a").iterdir():
        image = read_image(path)
        image[:, :12] = image[:, -12:] = 0
        write(path, image)
    view = yaml.safe_load(draft_dataset_file(tmp_path))["view"]
    assert list(view) == ["a"]
    x, y, width, height = view["a"]["rect"]
    assert (y, height) == (0, HEIGHT)
    assert abs(x - 12) <= 2
    assert abs(width - 40) <= 4


def test_nothing_is_written_over_unless_forced(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    path = write_draft(tmp_path)
    path.write_text("name: mine")
    with pytest.raises(UserError, match="--force"):
        write_draft(tmp_path)
    assert path.read_text() == "name: mine"
    write_draft(tmp_path, force=True)
    assert "format: 1" in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_forced_it_keeps_what_the_file_says_and_drafts_the_rest(tmp_path: Path) -> None:
    frames(tmp_path / "footage", "a", "b", "c")
    said = {
        "name": "mine",
        "videos": "footage",
        "classes": [
            {"name": "grasper", "value": 1, "color": [1, 2, 3]},
            {"name": "clip", "value": 2, "merge": "grasper"},
        ],
        "unpainted": "background",
        "cases": {"op": ["a", "b"]},
        "view": {"a": "none", "b": [0, 0, 32, 32]},
        "annotated": {"a": ["grasper"]},
    }
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(said))
    masks(tmp_path / "masks", "a", "c", values=np.array([0, 1, 7], np.uint8))
    write_draft(tmp_path, force=True)
    content = yaml.safe_load((tmp_path / "dataset.yaml").read_text())
    new = content["classes"].pop()
    assert new == {"name": "class_7", "value": 7, "color": [230, 159, 0]}  # the first colour that is free
    assert {key: content[key] for key in said} == said
    assert content["masks"] == "masks"
    assert content["split"] == {"train": ["c"], "test": ["op"]}
    assert load_dataset(tmp_path).classes.names == ("background", "grasper", "class_7")
    text = write_draft(tmp_path, force=True).read_text()
    assert yaml.safe_load(text)["classes"] == [*said["classes"], new]


def test_forced_it_leaves_a_guess_marked_until_somebody_answers_it(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "case1_1", "case1_2", "case2")
    masks(tmp_path / "masks", "case1_1", "case2", values=np.array([0, 1, 7], np.uint8))
    path = write_draft(tmp_path)
    answered = {
        "name: class_1,": ("name: 'no # guess',", "  # guess: the name"),
        "test: [case2]": ("test: [case2]", "  # guess"),
        "view: none": ("view: auto", "  # guess"),
    }
    lines = path.read_text().splitlines()
    for old, (new, mark) in answered.items():
        position = next(i for i, line in enumerate(lines) if old in line)
        lines[position] = lines[position].replace(old, new).partition(mark)[0]
    path.write_text("\n".join(lines))
    for _ in range(2):
        text = write_draft(tmp_path, force=True).read_text()
        marks = {line.partition("  # ")[0].strip(): line.partition("  # ")[2] for line in text.splitlines()}
        guessed = {place for place, mark in marks.items() if mark == "guess, kept"}
        assert {"videos: videos", "masks: masks", "cases:", "case1: [case1_1, case1_2]", "split:"} < guessed
        assert {"train: [case1]", "- {name: class_7, value: 7, color: [86, 180, 233]}"} < guessed
        assert marks["test: [case2]"] == ""
        assert marks["view: auto"] == marks["- {name: 'no # guess', value: 1, color: [230, 159, 0]}"] == "kept"


def test_a_key_whose_lines_are_all_answered_is_no_guess_any_more(tmp_path: Path) -> None:
    """The user takes the marks off the cases, as `check` asks, and leaves that of the line above them."""
    frames(tmp_path / "videos", "case1_1", "case1_2", "case2_1", "case2_2")
    path = write_draft(tmp_path)
    text = path.read_text()
    assert "cases:  # guess: by names" in text
    path.write_text(text.replace("case1_2]  # guess", "case1_2]"))
    assert "cases:  # guess, kept\n  case1: [case1_1, case1_2]\n" in write_draft(tmp_path, force=True).read_text()
    path.write_text(text.replace("]  # guess", "]"))
    assert "cases:  # kept\n  case1: [case1_1, case1_2]\n" in write_draft(tmp_path, force=True).read_text()
    path.write_text("cases: {one: [case1_1, case2_1], two: [case1_2]}  # guess")
    for _ in range(2):
        again = write_draft(tmp_path, force=True).read_text()
        assert "cases:  # guess, kept\n  one: [case1_1, case2_1]  # guess, kept\n  two:" in again


@pytest.mark.parametrize(
    "said", ["name: mine", "classes:\n- name: liver\n  value: 1", "{name: mine}  # guess", "format: 1"]
)
def test_forced_it_reads_a_file_in_any_style(tmp_path: Path, said: str) -> None:
    frames(tmp_path / "videos", "a")
    (tmp_path / "dataset.yaml").write_text(said)
    assert yaml.safe_load(said).items() <= yaml.safe_load(write_draft(tmp_path, force=True).read_text()).items()


def test_forced_it_reads_masks_in_the_colours_that_the_file_says(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    masks(tmp_path / "masks", "a", values=np.array([[0, 0, 0], [9, 9, 9], [5, 5, 5]], np.uint8))
    (tmp_path / "dataset.yaml").write_text("classes: [{name: liver, value: [9, 9, 9]}]")
    content = yaml.safe_load(write_draft(tmp_path, force=True).read_text())
    assert [entry["value"] for entry in content["classes"]] == [[9, 9, 9], [5, 5, 5]]


def test_a_file_with_a_mistake_is_not_written_over_even_by_force(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a")
    (tmp_path / "dataset.yaml").write_text("nmae: mine")
    with pytest.raises(UserError, match=r"did you mean name\?.*remove the file"):
        write_draft(tmp_path, force=True)
    assert (tmp_path / "dataset.yaml").read_text() == "nmae: mine"


def test_a_known_dataset_needs_no_draft(tmp_path: Path) -> None:
    frames(tmp_path / "img/patient1", "seq1")
    frames(tmp_path / "annot/patient1", "seq1")
    with pytest.raises(UserError, match="vocalfolds"):
        write_draft(tmp_path)
    assert not (tmp_path / "dataset.yaml").exists()


def test_an_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no videos"):
        write_draft(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("paths", "cases"),
    [
        (("case1", "case2", "case3"), {"case1": 1, "case2": 1, "case3": 1}),
        (("video_1", "video_2", "video_3"), {"video_1": 1, "video_2": 1, "video_3": 1}),
        (("op_07_1", "op_07_2", "op_08_1"), {"op_07": 2, "op_08_1": 1}),
        (("lap Part1", "lap part2", "lap_b"), {"lap": 2, "lap_b": 1}),
        (("case01a", "case01b", "case02", "case03b"), {"case01": 2, "case02": 1, "case03b": 1}),
        (("GX01", "GX01_1", "GX02"), {"GX01": 2, "GX02": 1}),
        (("GX010123", "GX020123", "gx010124"), {"GX0123": 2, "gx010124": 1}),
        (("GOPR0123", "GP010123", "GOPR0124", "op"), {"GP0123": 2, "GOPR0124": 1, "op": 1}),
        (("2023-01-14", "2023-01-20"), {"2023-01-14": 1, "2023-01-20": 1}),
        (("ann/1", "ann/2", "bob/1"), {"ann": 2, "bob_1": 1}),
        (("site/ann", "site/bob"), {"site_ann": 1, "site_bob": 1}),
        (("train/seq_1", "test/seq_1"), {"train_seq_1": 1, "test_seq_1": 1}),
        (
            ("train1/op_1/left", "train1/op_2/left", "train2/op_1/left", "train2/op_1/right", "test/op_1/left"),
            {"train1_op_1_left": 1, "train1_op_2_left": 1, "train2_op_1": 2, "test_op_1_left": 1},
        ),
        (("ann/train", "ann/test", "bob/train", "bob/test"), {"ann": 2, "bob": 2}),
        (("train1/left", "train1/right", "test1/left", "test1/right"), {"train1": 2, "test1": 2}),
        (("center1_001", "center1_002", "center2_001"), {"center1_001": 1, "center1_002": 1, "center2_001": 1}),
        (("video01_00080", "video01_00160", "video17_01563"), {"video01": 2, "video17_01563": 1}),
        (("op1 clip-0001", "op1 clip-0300", "op2"), {"op1 clip": 2, "op2": 1}),
        (("video01", "video01_00160", "video17_01563"), {"video01": 2, "video17_01563": 1}),
        (
            ("test/video01_00080", "test/video01_00160", "train/video17_01563"),
            {"test_video01": 2, "train_video17_01563": 1},
        ),
        (("video01_00080", "video01_00160"), {"video01_00080": 1, "video01_00160": 1}),
        (("clip_001", "clip_002"), {"clip_001": 1, "clip_002": 1}),
    ],
)
def test_cases_guessed_from_names(paths: tuple[str, ...], cases: dict[str, int]) -> None:
    assert {case: len(videos) for case, videos in guess_cases(clips(*paths)).items()} == cases


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, (1, 0, 0)), (2, (1, 0, 1)), (3, (2, 0, 1)), (4, (3, 0, 1)), (5, (3, 1, 1)), (10, (6, 2, 2))],
)
def test_split_by_case(count: int, sizes: tuple[int, int, int]) -> None:
    videos = clips(*(f"case{number}" for number in range(count)))
    cases = guess_cases(videos)
    split = guess_split(said_of_videos(videos), cases, Counter({video.id: 1 for video in videos}))
    assert tuple(len(split[name]) for name in ("train", "val", "test")) == sizes
    assert sorted(case for chosen in split.values() for case in chosen) == sorted(cases)


def test_what_is_held_out_has_labels() -> None:
    videos = clips(*(f"case{number}" for number in range(20)))
    labelled = {f"case{number}" for number in range(3, 8)}
    split = guess_split(said_of_videos(videos), guess_cases(videos), Counter(labelled))
    assert set(split["val"] + split["test"]) < labelled
    assert len(split["train"]) == 18


@pytest.mark.parametrize(
    ("labelled", "sentence"),
    [
        ((), "# split:  # which cases are for train, val and test; drafted among those with masks"),
        (("a",), "with one labelled case all are for training"),
        (("a", "b", "c"), "with 3 labelled cases one is for the test and none for validation"),
        (("a", "b", "c", "d", "e"), "about 60, 20 and 20 %"),
    ],
)
def test_the_draft_says_how_it_splits(tmp_path: Path, labelled: tuple[str, ...], sentence: str) -> None:
    frames(tmp_path / "videos", "a", "b", "c", "d", "e", count=1)
    masks(tmp_path / "masks", *labelled, values=np.array([0, 1], np.uint8), count=1)
    assert sentence in write_draft(tmp_path).read_text()
    if not labelled:
        assert {video.split for video in load_dataset(tmp_path)} == {"train"}


@pytest.mark.parametrize(
    ("paths", "split"),
    [
        (("train/a", "train/b", "Validation/c", "test/d"), "train train val test"),
        (("images/train", "images/val", "images/test"), "train val test"),
        (("test", "train", "val"), "test train val"),
        (
            ("train_seg", "train2", "data_train", "Testing-1", "test_video_41", "valset"),
            "train train train test test val",
        ),
        (("train1/video_1/left", "train2/video_2/left", "test/video_41/left"), "train train test"),
        (("train1", "train2", "test1", "trainer", "testis"), "train train test - -"),
    ],
)
def test_names_of_videos_and_folders_that_say_a_split_are_believed(paths: tuple[str, ...], split: str) -> None:
    videos = clips(*paths)
    cases = guess_cases(videos)
    of_case = {
        case: name
        for name, chosen in guess_split(said_of_videos(videos), cases, Counter(v.id for v in videos)).items()
        for case in chosen
    }
    assert [of_case.get(case, "-") for case in cases] == split.split()


@pytest.mark.parametrize(
    "paths",
    [
        ("test1", "test2", "test3"),
        ("case1", "case2", "leak_test"),
        ("trainer", "testis", "valve"),
        ("ann/train", "ann/test", "bob/train", "bob/test"),
    ],
)
def test_words_that_tell_no_splits_apart_are_none(paths: tuple[str, ...]) -> None:
    videos = clips(*paths)
    cases = guess_cases(videos)
    split = guess_split(said_of_videos(videos), cases, Counter(video.id for video in videos))
    assert (len(split["train"]), len(split["test"])) == (len(cases) - 1, 1)


def test_the_draft_of_folders_train_and_test_that_hold_the_frames(tmp_path: Path) -> None:
    videos = ("train", "val", "test", "extra")
    frames(tmp_path / "images", *videos)
    masks(tmp_path / "masks", *videos, values=np.array([1, 2], np.uint8))
    text = write_draft(tmp_path).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["train"], "val": ["val"], "test": ["test"]}
    assert "split:  # guess: by names and folders that say train, val or test" in text
    assert "# question: where do these belong, whose names say no one split? They are left out: [extra]" in text
    assert check(tmp_path, progress=False, workers=1).problems == []


def test_a_case_that_says_two_splits_is_asked_about(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "train1", "train2", "test1")
    (tmp_path / "dataset.yaml").write_text("cases: {ann: [train2, test1]}")
    text = write_draft(tmp_path, force=True).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["train1"]}
    assert "They are left out: [ann]" in text


def flat(root: Path, *names: str) -> None:
    """Frames of many videos in one folder."""
    for seed, name in enumerate(names):
        blobs = np.random.default_rng(seed).integers(60, 220, (6, 8, 3), np.uint8)
        write(root / f"{name}.png", cv2.resize(blobs, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC))


def flat_masks(root: Path, *names: str) -> None:
    for name in names:
        mask = np.full((HEIGHT, WIDTH), 2, np.uint8)
        mask[10:30, 20:40] = 1
        write(root / f"{name}.png", mask)


def numbered(*videos: str) -> list[str]:
    return [f"{video}_{index:04}" for video in videos for index in range(3)]


def test_frames_of_many_videos_in_one_folder_are_asked_about(tmp_path: Path) -> None:
    """The chunks of one operation are named just as several operations are."""
    names = numbered("caseA", "caseB", "op7_part1", "op7_part2")
    flat(tmp_path / "images", *names)
    flat_masks(tmp_path / "masks", *names)
    text = write_draft(tmp_path).read_text()
    assert "# question: are caseA, caseB, op7_part1 and 1 more of several operations? Now the images of a" in text
    assert yaml.safe_load(text)["split"] == {"train": ["images"]}
    (problem,) = (one for one in check(tmp_path, progress=False).problems if one.code == "several-operations")
    assert problem.what.endswith("may be those of several operations: caseA, caseB, op7_part1 and 1 more")
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    # As the question says: guesses about what is no video any more are made anew.
    (tmp_path / "dataset.yaml").write_text(text.replace("# videos_by: name", "videos_by: name"))
    text = write_draft(tmp_path, force=True).read_text()
    content = yaml.safe_load(text)
    assert "videos_by: name  # kept" in text
    assert content["cases"] == {"op7": ["op7_part1", "op7_part2"]}
    assert content["split"] == {"train": ["caseA", "op7"], "test": ["caseB"]}
    report = check(tmp_path, progress=False, workers=1)
    assert [video.id for video in report.summary.videos] == ["caseA", "caseB", "op7_part1", "op7_part2"]
    assert report.summary.labelled == 12
    assert [problem.code for problem in report.problems] == ["guessed-case"]


def test_a_folder_does_not_join_what_the_user_has_told_apart(tmp_path: Path) -> None:
    """Beside another video the folder is part of the names, and had made one case of them all."""
    flat(tmp_path / "stills", *numbered("PatA", "PatB"))
    frames(tmp_path, "other")
    (tmp_path / "dataset.yaml").write_text("videos_by: name\n")
    content = yaml.safe_load(write_draft(tmp_path, force=True).read_text())
    assert "cases" not in content, "each is one of its own"
    assert sorted(load_dataset(tmp_path).cases) == ["other", "stills_PatA", "stills_PatB"]


def test_what_the_draft_joined_is_said_until_somebody_has_answered(tmp_path: Path) -> None:
    """Four operations in one folder, beside another video: nothing else says why the split keeps them together."""
    frames(tmp_path / "new", "a", "b", "c", "d")
    frames(tmp_path, "old")
    path = write_draft(tmp_path)

    def said() -> list[tuple[str, str, str]]:
        problems = check(tmp_path, progress=False, workers=1).problems
        return [(one.severity, one.what, one.first) for one in problems if one.code == "guessed-case"]

    ((severity, what, first),) = said()
    assert severity == "note"
    assert what.startswith("4 videos joined to 1 case by a guess, from folders and names: a case is one operation")
    assert first == "new (new_a, new_b, new_c and new_d)"
    path.write_text(path.read_text().replace("new: [new_a, new_b, new_c, new_d]  # guess", "new: [new_a, new_b]"))
    assert said() == []
    shutil.rmtree(tmp_path / "old")
    path.write_text("cases:\n  new: [a, b, c, d]  # guess\n")
    ((severity, _, _),) = said()
    assert severity == "warning", "there is nothing left to test on"


def test_a_split_of_few_labels_is_guessed_anew_when_there_are_more(tmp_path: Path) -> None:
    frames(tmp_path / "videos", "a", "b", "c", count=1)
    values = np.array([0, 1], np.uint8)
    masks(tmp_path / "masks", "a", values=values, count=1)
    text = write_draft(tmp_path).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["a", "b", "c"]}
    masks(tmp_path / "masks", "b", "c", values=values, count=1)
    assert yaml.safe_load(write_draft(tmp_path, force=True).read_text())["split"] == {
        "train": ["a", "c"],
        "test": ["b"],
    }
    (tmp_path / "dataset.yaml").write_text(re.sub(r"(train: \[a, b, c\]).*", r"\1", text))
    assert yaml.safe_load(write_draft(tmp_path, force=True).read_text())["split"] == {"train": ["a", "b", "c"]}


def test_an_answer_is_kept_though_it_is_outdated(tmp_path: Path) -> None:
    names = numbered("caseA", "caseB")
    flat(tmp_path / "images", *names)
    flat_masks(tmp_path / "masks", *names)
    text = write_draft(tmp_path).read_text()
    answered = re.sub(r"(train: \[images\]).*", r"\1", text).replace("# videos_by: name", "videos_by: name")
    (tmp_path / "dataset.yaml").write_text(answered)
    assert yaml.safe_load(write_draft(tmp_path, force=True).read_text())["split"] == {"train": ["images"]}


@pytest.mark.parametrize(
    "names",
    [
        "GX010123_0001 GX010123_0002 GX020123_0001 GX020123_0002",
        "part1_0001 part1_0002 part2_0001 part2_0002",
        "vlcsnap-2024-05-01-12h30m01s010 vlcsnap-2024-05-01-12h30m01s200 vlcsnap-2024-05-01-12h30m02s010 x1 x2",
        "10_000 10_250 11_000 11_250",
        "L_0001 L_0002 R_0001 R_0002",
        "op_3_07 op_3_08 op_4_07 op_4_08",
    ],
)
def test_one_operation_does_not_become_several_videos_by_a_guess(tmp_path: Path, names: str) -> None:
    flat(tmp_path / "images", *names.split())
    flat_masks(tmp_path / "masks", *names.split())
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    text = write_draft(tmp_path).read_text()
    assert "of several operations?" in text
    assert yaml.safe_load(text)["split"] == {"train": ["images"]}


def test_folders_of_frames_are_videos_whatever_their_frames_are_called(tmp_path: Path) -> None:
    for video in ("op1", "op2"):
        flat(tmp_path / "videos" / video, *numbered("part1", "part2"))
    assert [video.id for video in load_dataset(tmp_path)] == ["op1", "op2"]


def test_a_file_that_names_its_videos_is_not_asked_how_they_are_told_apart(tmp_path: Path) -> None:
    """Its cases and splits speak of the videos as they were when it was written."""
    flat(tmp_path / "images", *numbered("caseA", "caseB"))
    (tmp_path / "dataset.yaml").write_text("videos: images\ncases: {op: [images]}")
    assert "videos_by" not in yaml.safe_load(write_draft(tmp_path, force=True).read_text())
    assert list(load_dataset(tmp_path).cases) == ["op"]


def test_a_split_of_folders_by_video_is_followed(tmp_path: Path) -> None:
    for split, videos in {"train": "ab", "valid": "c", "test": "d"}.items():
        flat(tmp_path / "images" / split, *numbered(*videos))
    assert yaml.safe_load(write_draft(tmp_path).read_text())["split"] == {
        "train": ["train_a", "train_b"],
        "val": ["valid_c"],
        "test": ["test_d"],
    }


def test_a_split_of_folders_by_frame_is_not_followed(tmp_path: Path) -> None:
    """As Roboflow splits: one operation in train and test gives wrong scores."""
    flat(tmp_path / "images/train", "a_001", "a_003", "b_001", "b_002", "c_001", "c_002")
    flat(tmp_path / "images/test", "a_002", "a_004", "b_003", "b_004", "d_001", "d_002")
    flat_masks(tmp_path / "masks/train", "a_001", "b_001", "c_001")
    text = write_draft(tmp_path).read_text()
    content = yaml.safe_load(text)
    assert content["cases"] == {"a": ["test_a", "train_a"], "b": ["test_b", "train_b"]}
    assert content["split"] == {"train": ["train_c"], "test": ["test_d"]}
    assert "They are left out: [a, b]" in text


@pytest.mark.parametrize(
    ("train", "test", "one"),
    [
        ("frame_001 frame_002 frame_004 frame_006", "frame_003 frame_005", True),
        ("1_jpg.rf.aa 2_jpg.rf.0b 4_jpg.rf.03", "3_jpg.rf.11", True),
        ("frame_001 frame_002 frame_003", "frame_004 frame_005", False),  # perhaps the numbers go on in another video
        ("frame_001 frame_002 frame_004", "frame_002 frame_003", False),
        ("polyp_1 polyp_2 polyp_5 x_4", "polyp_3 y_1", False),
    ],
)
def test_folders_of_splits_that_have_frames_of_one_video_by_turns_are_one_case(
    tmp_path: Path, train: str, test: str, one: bool
) -> None:
    """As Roboflow splits the frames of a single video."""
    flat(tmp_path / "images/train", *train.split())
    flat(tmp_path / "images/test", *test.split())
    flat_masks(tmp_path / "masks/train", train.split()[0])
    flat_masks(tmp_path / "masks/test", test.split()[0])
    text = write_draft(tmp_path).read_text()
    content = yaml.safe_load(text)
    assert content["split"] == ({"train": ["frames"]} if one else {"train": ["train"], "test": ["test"]})
    assert content.get("cases") == ({"frames": ["test", "train"]} if one else None)
    assert ("frames of one case would be in several splits, and scores wrong" in text) == one


def test_where_folders_divide_all_that_names_tell_apart_the_split_is_asked(tmp_path: Path) -> None:
    """It would hang on the names alone, and they may be the chunks of one operation."""
    flat(tmp_path / "images/train", "GX01_001", "GX01_003", "GX02_001", "GX02_002")
    flat(tmp_path / "images/test", "GX01_002", "GX01_004", "GX02_003", "GX02_004")
    write_draft(tmp_path)  # before there are masks
    flat_masks(tmp_path / "masks/train", "GX01_001", "GX02_001")
    flat_masks(tmp_path / "masks/test", "GX01_002", "GX02_003")
    for text in (draft_dataset_file(tmp_path), write_draft(tmp_path, force=True).read_text()):
        content = yaml.safe_load(text)
        assert content["cases"] == {"GX01": ["test_GX01", "train_GX01"], "GX02": ["test_GX02", "train_GX02"]}
        assert "split" not in content
        assert "# split:  # question: which cases are for train and test? names and folders that say train" in text


def test_coco_among_the_frames_of_several_videos(tmp_path: Path) -> None:
    """As Roboflow exports it."""
    for split, videos in {"train": "ab", "test": "cd"}.items():
        flat(tmp_path / split, *numbered(*videos))
        polygon = {"image_id": 1, "category_id": 1, "segmentation": [[2, 1, 6, 1, 6, 4, 2, 4]]}
        image = {"id": 1, "file_name": f"{videos[0]}_0001.png", "width": WIDTH, "height": HEIGHT}
        coco = {"images": [image], "categories": [{"id": 1, "name": "duct"}], "annotations": [polygon]}
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(coco))
    assert yaml.safe_load(write_draft(tmp_path).read_text())["masks"] == [
        "test/_annotations.coco.json",
        "train/_annotations.coco.json",
    ]
    dataset = load_dataset(tmp_path)
    assert {video.id: video.with_mask for video in dataset if video.with_mask} == {"train_a": [1], "test_c": [1]}
    assert not [note for note in dataset.notes if "JSON" in note]
