import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import av
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from source_tester import SourceTester, write_image, write_text

from suture.checks.check import check
from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.listing import in_order, last_number, natural
from suture.data.video_index import JOURNAL, RECORD
from suture.data.view import View

CLASSES = [
    {"name": "tissue", "value": 0, "color": [230, 150, 140]},
    {"name": "grasper", "value": 3, "merge": "instrument"},
    {"name": "scissors", "value": 4, "merge": "instrument"},
    {"name": "void", "value": 9, "ignore": True},
]


def write_video(path: Path, frames: int = 12, size: tuple[int, int] = (32, 32)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(frames):
            picture = np.full((size[1], size[0], 3), 20 * number % 255, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(stream.encode())


def write_frames(folder: Path, *names: str) -> None:
    for name in names:
        write_image(folder / f"{name}.png", (9, 9, 9))


def write_file(root: Path, **content: Any) -> None:
    write_text(root / "dataset.yaml", yaml.safe_dump({"format": 1} | content))


def load_masked(root: Path, **content: Any) -> Dataset:
    """Write a dataset.yaml for folders `videos` and `masks`, and load it."""
    write_file(root, **({"videos": "videos", "masks": "masks", "classes": CLASSES} | content))
    return load_dataset(root)


def load_one(root: Path, mask: Any = 0, **content: Any) -> Dataset:
    """A video `a` of one frame with a mask."""
    write_frames(root / "videos" / "a", "1")
    write_image(root / "masks" / "1.png", mask)
    return load_masked(root, **content)


def first_ids(dataset: Dataset) -> set[int]:
    return {*np.unique(dataset.read_mask(dataset["a"], 0)).tolist()}


def masks_of(dataset: Dataset) -> dict[str, list[int]]:
    return {video.id: video.with_mask for video in dataset if video.with_mask}


class TestFolder(SourceTester):
    """Video files and folders of frames side by side, masks in the three ways to name them."""

    name = "folder"
    frames: ClassVar = {"clip_a": 12, "clip_b": 12, "still": 3, "late_part1": 2}
    splits: ClassVar = {"train": {"clip_a", "clip_b"}, "val": {"still"}}

    def make(self, root: Path) -> None:
        write_video(root / "videos" / "clip_a.mp4")
        write_video(root / "videos" / "clip_b.MP4")
        write_frames(root / "videos" / "still", "f2", "f10", "f100")
        write_frames(root / "videos" / "late" / "part1", "0001", "0002")
        write_image(root / "masks" / "clip_a__frame_000003.png", 0, (32, 32))
        write_image(root / "masks" / "clip_b" / "frame_000011.png", 9, (32, 32))
        write_image(root / "masks" / "clip_b" / "7.png", 4, (32, 32))
        write_image(root / "masks" / "still" / "f10.png", 3)
        write_image(root / "masks" / "still__frame_000002.png", 4)
        write_image(root / "masks" / "late" / "part1" / "0002.png", 0)
        write_text(root / "exclude.csv", "video,first,last,reason\nclip_a,0,2,out of body\nclip_a,9,9,\n")
        write_file(
            root,
            name="mine",
            videos="videos",
            masks="masks",
            classes=CLASSES,
            unpainted="background",
            cases={"one": ["clip_a", "clip_b"]},
            split={"train": ["one"], "val": ["still"], "test": []},
            view={"clip_a": [2, 2, 20, 20], "still": "none", "late_part1": {"rect": [0, 0, 4, 4], "circle": [2, 2, 2]}},
            exclude="exclude.csv",
        )

    def test_masks_find_their_frames(self, root: Path) -> None:
        dataset = self.load(root)
        assert masks_of(dataset) == {"clip_a": [3], "clip_b": [7, 11], "still": [1, 2], "late_part1": [1]}
        assert not dataset.unmatched_masks

    def test_classes(self, root: Path) -> None:
        dataset = self.load(root)
        assert dataset.classes.names == ("background", "tissue", "instrument")
        assert dataset.classes.colors[:2] == ((0, 0, 0), (230, 150, 140))
        assert {int(dataset.read_mask(dataset["still"], index)[0, 0]) for index in (1, 2)} == {2}
        assert int(dataset.read_mask(dataset["clip_b"], 11)[0, 0]) == IGNORE

    def test_view_and_exclusions(self, root: Path) -> None:
        dataset = self.load(root)
        assert dataset["clip_a"].view == View(2, 2, 20, 20)
        assert dataset["clip_b"].view_setting == "auto"
        assert dataset["still"].view_setting is None
        assert dataset["late_part1"].view == View(0, 0, 4, 4, (2, 2, 2))
        assert dataset["clip_a"].excluded == {0, 1, 2, 9}
        ids = dataset.read_mask(dataset["clip_a"], 3)
        assert int((ids != IGNORE).sum()) == 400

    def test_every_so_many_frames_and_all_with_a_mask(self, root: Path) -> None:
        write_text(root / "dataset.yaml", (root / "dataset.yaml").read_text() + "take_every: 5\n")
        dataset = self.load(root)
        usable = {video.id: video.usable for video in dataset}
        assert usable == {"clip_a": [3, 5, 10], "clip_b": [0, 5, 7, 10, 11], "still": [0, 1, 2], "late_part1": [0, 1]}
        assert masks_of(dataset)["clip_b"] == [7, 11]
        assert dataset["clip_a"].torn([3, 5, 10]).tolist() == [False, True]  # by frame 9, which is excluded
        assert dataset["clip_b"].torn([0, 5, 10, 11]).tolist() == [False, True, False]  # by frame 7, which is left out
        report = check(dataset, progress=False, workers=1)
        assert [video.excluded for video in report.summary.videos if video.id == "clip_a"] == [4]
        assert "Of 29 frames 13 take part (`take_every: 5` in dataset.yaml)." in report.summary.notes
        assert report.read == 13

    def test_cases(self, root: Path) -> None:
        dataset = self.load(root)
        assert {case: len(videos) for case, videos in dataset.cases.items()} == {"one": 2, "still": 1, "late_part1": 1}
        assert dataset["late_part1"].split is None

    def test_numbers(self, root: Path) -> None:
        assert [frame.number for frame in self.load(root)["still"].frames] == [2, 10, 100]

    def test_the_file_itself_may_be_given(self, root: Path) -> None:
        assert load_dataset(root / "dataset.yaml").name == "mine"

    def test_goes_before_a_known_layout(self, root: Path) -> None:
        write_frames(root / "videos" / "seq_1" / "left_frames", "frame000")
        assert load_dataset(root).name == "mine"
        assert "seq_1_left_frames" in {video.id for video in load_dataset(root)}

    def test_a_video_file_is_not_opened_before_it_is_asked(self, root: Path) -> None:
        (root / "videos" / "clip_b.MP4").write_bytes(b"damaged")
        write_file(root, videos="videos", masks="masks", classes=CLASSES)
        dataset = load_dataset(root)
        assert len(dataset["clip_a"]) == 12
        with pytest.raises(UserError, match=r"clip_b\.MP4"):
            len(dataset["clip_b"])


class TestOneFolderOfFrames(SourceTester):
    """Frames right in the folder are one video, named after the folder."""

    name = "folder"
    frames: ClassVar = {"data": 3}
    splits: ClassVar = {"train": {"data"}}

    def make(self, root: Path) -> None:
        write_frames(root, "img_8", "img_9", "img_10")
        write_image(root / "masks" / "img_9.png", 0)
        write_image(root / "masks" / "data__frame_000002.png", 0)
        write_file(root, masks="masks", classes=CLASSES)

    def test_masks(self, root: Path) -> None:
        assert masks_of(self.load(root)) == {"data": [1, 2]}
        assert [frame.number for frame in self.load(root)["data"].frames] == [8, 9, 10]


def test_without_a_file(tmp_path: Path) -> None:
    write_frames(tmp_path / "a", "1", "2")
    write_video(tmp_path / "b.mp4")
    write_image(tmp_path / "masks" / "a" / "1.png")
    dataset = load_dataset(tmp_path)
    assert {video.id: len(video) for video in dataset} == {"a": 2, "b": 12}
    assert dataset.classes.names == ("background",)
    assert not masks_of(dataset)
    assert not dataset.notes  # `suture check` tells of the masks and the file in one finding
    (tmp_path / "masks" / "a" / "1.png").unlink()
    (tmp_path / "masks" / "a").rmdir()
    assert "suture check" in load_dataset(tmp_path).notes[0]


def test_a_list_of_excluded_frames_that_nothing_names_is_told(tmp_path: Path) -> None:
    write_frames(tmp_path / "a", "1", "2")
    write_text(tmp_path / "exclude.csv", "video,first,last,reason\na,0,0,out of body\n")
    unread = load_dataset(tmp_path)
    assert unread["a"].usable == [0, 1]
    assert "exclude.csv is not read" in unread.notes[-1]
    write_text(tmp_path / "dataset.yaml", "format: 1\nexclude: exclude.csv\n")
    read = load_dataset(tmp_path)
    assert read["a"].usable == [1]
    assert not read.notes
    write_text(tmp_path / "exclude.csv", "video;first;last;reason\na;0;1;with semicolons, as spreadsheets save it\n")
    assert load_dataset(tmp_path)["a"].usable == []


@pytest.mark.parametrize("name", [RECORD, JOURNAL])
def test_results_of_a_prediction_are_no_videos(tmp_path: Path, name: str) -> None:
    write_video(tmp_path / "a.mp4")
    write_image(tmp_path / "predictions/a/masks/a__frame_000000.png")
    write_video(tmp_path / "predictions/a/overlay.mp4")
    write_text(tmp_path / "predictions/a" / name, "{}")
    assert [video.id for video in load_dataset(tmp_path)] == ["a"]


@pytest.mark.parametrize(
    ("content", "out", "pictures", "reason"),
    [
        ({"videos": "videos", "masks": "masks"}, "videos/run", False, "has its videos"),
        ({"videos": "videos", "masks": "masks"}, "videos", False, "has its videos"),
        ({"videos": "videos", "masks": {"a": "labels/a"}}, "labels/a/model.onnx", False, "has its masks"),
        ({"videos": "videos"}, "masks/run", False, "has its masks"),  # where a draft would look for them
        ({"videos": "videos", "masks": "masks"}, "runs/one", False, ""),
        ({"videos": "videos", "masks": "masks"}, "pictures", True, ""),
        ({"masks": "masks"}, "masks/predictions", False, "has its masks"),
        ({"masks": "masks"}, "runs/one", False, ""),  # a run beside the videos is known as one
        ({"masks": "masks"}, "pictures", True, "has its videos"),
        ({"masks": "masks"}, "../pictures", True, ""),
    ],
)
def test_nothing_is_written_where_it_would_become_data(
    content: dict[str, Any], out: str, pictures: bool, reason: str, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    write_file(root, **content)
    (tmp_path / "link").symlink_to(root)
    for place in (root / out, tmp_path / "link" / out):
        if reason:
            with pytest.raises(UserError, match=f"lies in .*{reason}, and would become one of them: give a place"):
                require_outside_dataset(place, pictures=pictures)
        else:
            require_outside_dataset(place, pictures=pictures)


def test_a_single_video(tmp_path: Path) -> None:
    write_video(tmp_path / "film.mp4")
    dataset = load_dataset(tmp_path / "film.mp4")
    assert [(video.id, len(video)) for video in dataset] == [("film", 12)]
    assert dataset["film"].read(11).shape == (32, 32, 3)
    frames: ClassVar = dataset["film"].frames
    assert frames[-1] == frames[11] == list(frames)[-1] == frames[10:][1]
    with pytest.raises(IndexError):
        frames[12]
    write_text(tmp_path / "notes.txt", "")
    with pytest.raises(UserError, match="is not a video"):
        load_dataset(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(lambda path: _palette(path), id="palette"),
        pytest.param(lambda path: write_image(path, 3), id="grey"),
        pytest.param(lambda path: write_image(path, (3, 3, 3)), id="grey as RGB"),
        pytest.param(lambda path: write_image(path, np.full((6, 8), 3, np.uint16)), id="16 bits"),
    ],
)
def test_masks_of_ids(tmp_path: Path, mask: Callable[[Path], None]) -> None:
    load_one(tmp_path)
    mask(tmp_path / "masks" / "1.png")
    assert first_ids(load_dataset(tmp_path)) == {1}


@pytest.mark.parametrize("palette", [True, False])
def test_masks_of_colors(tmp_path: Path, palette: bool) -> None:
    classes = [{"name": "a", "value": [255, 0, 0]}, {"name": "b", "value": [[0, 255, 0], [0, 0, 255]]}]
    load_one(tmp_path, (0, 255, 0), classes=classes)
    if palette:
        _palette(tmp_path / "masks/1.png")
    assert first_ids(load_dataset(tmp_path)) == {1}


def _palette(path: Path) -> None:
    from PIL import Image

    image = Image.fromarray(np.full((6, 8), 3, np.uint8), "P")
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 0, 255, 0, 255, 0])
    image.save(path)


def test_only_some_classes_annotated(tmp_path: Path) -> None:
    values = np.zeros((6, 8), np.uint8)
    values[0] = 3
    dataset = load_one(tmp_path, values, annotated={"a": ["grasper"]})
    ids = dataset.read_mask(dataset["a"], 0)
    assert set(np.unique(ids[0])) == {1}
    assert set(np.unique(ids[1:])) == {IGNORE}


@pytest.mark.parametrize("unpainted", ["ignore", "void", "instrument", "grasper"])
def test_unpainted(tmp_path: Path, unpainted: str) -> None:
    with pytest.raises(UserError, match=r"1\.png holds the value 0 .*set `unpainted`"):
        first_ids(load_one(tmp_path, classes=CLASSES[1:]))
    dataset = load_one(tmp_path, classes=CLASSES[1:], unpainted=unpainted)
    assert first_ids(dataset) == {IGNORE if unpainted in ("ignore", "void") else 0}


@pytest.mark.parametrize(
    ("videos", "masks", "matched", "unmatched", "doubtful"),
    [
        ("a/1 film.mp4", "b/1 a/2 a__frame_000001 film/last film/11 unknown__frame_000000", {"film": [11]}, 5, 0),
        ("film.mp4", "film__frame_000016", {}, 1, 0),
        ("a/1 b/1", "1", {}, 0, 1),
        ("a/1 c.mp4 d.mp4", "frame_000001", {}, 0, 1),
        ("a/1", "1 a__frame_000000", {"a": [0]}, 0, 1),
        ("a/part1/a1 b/part1/b1", "part1__frame_000000", {}, 0, 1),
        (
            "a/part1/1 a/part1/2",
            "part1/1 images/a/part1/2 b/part1/1 b/part1__frame_000000",
            *({"a_part1": [0, 1]}, 2, 0),
        ),
        (
            "train/5/x1 train/5/x2 train/5/x3 train/5/both test/6/y1 test/6/both",
            "foo/x1 foo/bar/y1 train/x2 test/x3 foo/both",  # test/ is the folder of another video than x3 is in
            *({"train_5": [1, 2], "test_6": [1]}, 2, 0),
        ),
        ("a/1 a/2", "a/1 b/2", {"a": [0]}, 1, 0),
        ("film.mp4", "op1/000001", {}, 1, 0),
        ("film.mp4", "op1/000001 op2/000002", {}, 2, 0),
        ("film.mp4", "images/000001", {"film": [1]}, 0, 0),
        (
            "a/f_1_endo a/f_2_endo film.mp4",
            "a/f_1_endo_gt_mask f_2_endo_gt_mask film__frame_000003_gt_mask film/4_gt_mask",
            *({"a": [0, 1], "film": [3, 4]}, 0, 0),
        ),
        ("a/f_1 a/f_2", "a/f_1_gt_mask a/f_2_mask", {"a": [1]}, 1, 0),  # they may be of two kinds
    ],
)
def test_masks_are_matched_by_their_names(
    tmp_path: Path, videos: str, masks: str, matched: dict[str, list[int]], unmatched: int, doubtful: int
) -> None:
    for name in videos.split():
        write_video(tmp_path / "videos" / name) if name.endswith(".mp4") else write_frames(tmp_path / "videos", name)
    for name in masks.split():
        write_image(tmp_path / "masks" / f"{name}.png", 0)
    dataset = load_masked(tmp_path)
    assert masks_of(dataset) == matched
    assert (len(dataset.unmatched_masks), len(dataset.doubtful_masks)) == (unmatched, doubtful)


def test_masks_per_video_and_in_several_places(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    for video in "ab":
        write_image(tmp_path / f"labels of {video}/{video}/1.png", 0)
    places = {"a": "labels of a", "b": "labels of b"}
    for masks in (places, list(places.values())):
        assert masks_of(load_masked(tmp_path, masks=masks)) == {"a": [0], "b": [0]}
    with pytest.raises(UserError, match=r"masks names .*three, which does not exist"):
        load_masked(tmp_path, masks=["labels of a", "three"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 2}, "has format 2, but this version of Suture reads 1"),
        ({"clases": []}, r"no key 'clases' \(did you mean classes\?\)"),
        ({"classes": [{"name": "a", "colour": [1, 2, 3]}]}, r"no key 'classes\.0\.colour' \(did you mean color\?\)"),
        ({"classes": [{"name": "a", "value": 70000}]}, "id from 0 to 65535"),
        ({"classes": [{"name": "a", "value": [[1, 2]]}]}, "three numbers from 0 to 255"),
        ({"classes": [{"name": "a", "value": 1}, {"name": "b", "value": 1}]}, "the value 1 is given to a and to b"),
        ({"classes": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}, "a is listed twice"),
        ({"classes": [{"name": "a", "value": 1}, {"name": "b", "value": [[1, 2, 3]]}]}, "give all the same kind"),
        ({"classes": [{"name": "a", "value": 1, "merge": "b", "ignore": True}]}, "both merge and ignore"),
        ({"unpainted": "tisue", "classes": CLASSES}, r"unpainted is 'tisue', .*did you mean tissue"),
        ({"masks": "mask"}, "masks names .*mask, which does not exist"),
        ({"masks": "{video}/{frame}_mask.png", "classes": CLASSES}, "which is the path of no file"),
        ({"masks": "masks/{video}_mask.png"}, r"a pattern names \{frame\}"),
        ({"frames": "{video}/{image}.png"}, r"a pattern names \{frame\}"),
        ({"masks": "videos"}, "names masks but no classes"),
        ({"masks": "videos", "classes": [{"name": "a"}]}, "no value for a in masks"),
        ({"videos": "video"}, "video, the folder of the videos, does not exist"),
        ({"videos_by": "names"}, r"videos_by is 'names': .*'folder' or 'name'"),
        ({"cases": {"one": ["clip_a"], "two": ["clip_a"]}}, "clip_a is in the cases one and two"),
        ({"cases": {"clip_a": ["clip_b"]}}, "clip_a is a case, and a video that is not in it"),
        ({"cases": {"one": [1]}}, "names that look like numbers need quotes"),
        ({"cases": {"one": ["clip_a"]}, "split": {"train": ["clip_a"]}}, "a video of the case one"),
        ({"split": {"train": ["clip_a"], "test": ["clip_a"]}}, "clip_a is in the splits test and train"),
        ({"split": {"training": []}}, "'train', 'val' or 'test'"),
        ({"view": "whole"}, "the view is 'whole', expected auto"),
        ({"view": {"clip_a": [0, 0, 0, 0]}}, "view.clip_a: the view"),
        ({"annotated": {"clip_a": ["tisue"]}, "classes": CLASSES}, r"annotated names 'tisue', .*did you mean tissue"),
        ({"exclude": "nothing.csv"}, "nothing.csv cannot be read"),
        ({"exclude": "columns.csv"}, "has the columns a, b"),
        ({"exclude": "backwards.csv"}, "line 2: found 'clip_a,5,4,x'"),
        ({"exclude": "beyond.csv"}, "line 2: frame 2 is excluded, but clip_a ends at 1"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    for video in ("clip_a", "clip_b"):
        write_frames(tmp_path / "videos" / video, "1", "2")
    write_text(tmp_path / "columns.csv", "a,b\n")
    write_text(tmp_path / "backwards.csv", "video,first,last,reason\nclip_a,5,4,x\n")
    write_text(tmp_path / "beyond.csv", "video,first,last,reason\nclip_a,0,2,x\n")
    write_file(tmp_path, **({"videos": "videos"} | content))
    with pytest.raises(UserError, match=message) as error:
        load_dataset(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        ({"cases": {"one": ["clip_c"]}}, "cases.one names the video 'clip_c', which is not there (did you mean clip_"),
        ({"cases": {"one": ["clip_c"]}, "split": {"train": ["one"]}}, "cases.one names the video 'clip_c'"),
        ({"split": {"train": ["op9", "clip_a"]}}, "split.train names 'op9', which is no case"),
        ({"view": {"clip_c": "auto"}}, "view names the video 'clip_c'"),
        ({"annotated": {"op9": ["tissue"]}, "classes": CLASSES}, "annotated names the video 'op9', which is not there"),
        ({"masks": {"op9": "masks"}, "classes": CLASSES}, "masks names the video 'op9'"),
        (
            {"masks": {"clip": "masks"}, "classes": CLASSES},
            "masks names the video 'clip', which is not there (did you mean clip_a or clip_b?)",
        ),
        ({"exclude": "exclude.csv"}, "line 2 names the video 'op9'"),
    ],
)
def test_a_video_that_is_named_and_not_there_hides_no_other_finding(
    tmp_path: Path, content: dict[str, Any], missing: str
) -> None:
    for video in ("clip_a", "clip_b"):
        write_frames(tmp_path / "videos" / video, "1", "2")
    write_image(tmp_path / "masks/1.png", 0)
    write_text(tmp_path / "exclude.csv", "video,first,last,reason\nop9,0,1,x\n")
    write_file(tmp_path, **({"videos": "videos"} | content))
    dataset = load_dataset(tmp_path)
    assert [video.id for video in dataset] == ["clip_a", "clip_b"]
    (place,) = dataset.missing_videos
    assert missing in place
    assert place.startswith(str(tmp_path))
    with pytest.raises(UserError, match="put the video back"):
        dataset.require_videos()


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "\x00"])
def test_a_file_that_does_not_parse(tmp_path: Path, text: str) -> None:
    write_frames(tmp_path / "a", "1")
    write_text(tmp_path / "dataset.yaml", text)
    with pytest.raises(UserError, match=r"dataset\.yaml") as error:
        load_dataset(tmp_path)
    assert "\n" not in str(error.value)


def test_links_in_a_circle(tmp_path: Path) -> None:
    write_frames(tmp_path / "a", "1")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "a" / "everything").symlink_to("/")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    dataset = load_dataset(tmp_path)
    assert [len(video) for video in dataset] == [1, 1]
    with pytest.raises(UserError, match=r"self\.png"):
        dataset.videos[0].read(0)


def test_masks_among_the_frames(tmp_path: Path) -> None:
    """As in CholecSeg8k."""
    for number in (80, 81):
        for suffix in ("", "_mask", "_color_mask", "_watershed_mask"):
            write_image(tmp_path / f"video01/video01_00080/frame_{number}_endo{suffix}.png", 3)
    dataset = load_dataset(tmp_path)
    assert [(video.id, len(video)) for video in dataset] == [("video01_video01_00080", 2)]
    assert not masks_of(dataset)
    assert len(dataset.unread_masks) == 6
    assert dataset.notes[0].startswith("6 files beside frames")
    for suffix in ("_mask", "_watershed_mask"):
        dataset = load_masked(tmp_path, videos=".", masks=f"{{video}}/{{frame}}{suffix}.png")
        masks = dataset["video01_video01_00080"].masks.values()
        assert [Path(mask.name).name for mask in masks] == [f"frame_{n}_endo{suffix}.png" for n in (80, 81)]
        assert not dataset.unmatched_masks
        assert not dataset.unread_masks
        assert dataset.notes[0].startswith("4 files beside frames")


@pytest.mark.parametrize(
    ("frame", "mask"), [("1", "1.GT"), ("f 1", "f 1 - Label"), ("a-1", "a-1-inst-Segmentation"), ("a_seg", "a_seg_gt")]
)
def test_names_that_say_mask(tmp_path: Path, frame: str, mask: str) -> None:
    write_frames(tmp_path / "a", frame, mask)
    dataset = load_dataset(tmp_path)
    assert len(dataset["a"]) == 1
    assert [Path(name).stem for name in dataset.unread_masks] == [mask]


@pytest.mark.parametrize(
    "names", [("1", "1mask"), ("1", "1_2_mask"), ("1", "2_mask"), ("1", "1_masked"), ("mask", "gt")]
)
def test_names_that_do_not_say_mask(tmp_path: Path, names: tuple[str, ...]) -> None:
    write_frames(tmp_path / "a", *names)
    dataset = load_dataset(tmp_path)
    assert len(dataset["a"]) == 2
    assert not dataset.unread_masks


def test_a_pattern_of_masks_whose_names_say_nothing(tmp_path: Path) -> None:
    write_frames(tmp_path / "a", "1", "2", "tools_1", "tools_9")
    write_file(tmp_path, masks="{video}/tools_{frame}.png", classes=CLASSES)
    dataset = load_dataset(tmp_path)
    assert {video.id: len(video) for video in dataset} == {"a": 2}
    assert masks_of(dataset) == {"a": [0]}
    assert [Path(name).name for name in dataset.unmatched_masks] == ["tools_9.png"]


def test_labels_that_nobody_reads_are_noted(tmp_path: Path) -> None:
    write_frames(tmp_path / "a" / "img", "1", "2")
    for place in ("a/img/2.json", "a/meta.json", "a/img/annotation_coco.json", "runs/metrics.json"):
        write_text(tmp_path / place, "{}")
    write_file(tmp_path)
    (note,) = load_dataset(tmp_path).notes
    assert note.startswith("2 files beside frames (first: a/img/2.json)")


def test_one_name_for_two_videos(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4")
    write_frames(tmp_path / "a", "1")
    with pytest.raises(UserError, match="the video names a occur twice"):
        load_dataset(tmp_path)


def test_a_zip_without_labels_is_refused(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos" / "a", "1")
    with zipfile.ZipFile(tmp_path / "masks.zip", "w") as archive:
        archive.writestr("masks/1.png", "hello")
    write_file(tmp_path, videos="videos", masks="masks.zip", classes=CLASSES)
    with pytest.raises(UserError, match=r"masks\.zip holds no export of CVAT"):
        load_dataset(tmp_path)


def test_files_are_listed_without_a_look_at_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand frames on a network drive: one question per folder, not one per file."""
    for kind in ("videos", "masks"):
        (tmp_path / kind / "a").mkdir(parents=True)
        for number in range(500):
            (tmp_path / kind / "a" / f"{number}.png").touch()
    write_file(tmp_path, videos="videos", masks="masks", classes=CLASSES)
    asked: list[Any] = []
    stat = os.stat

    def counted(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        asked.append(path)
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", counted)
    assert len(load_dataset(tmp_path)["a"].with_mask) == 500
    below = [path for path in asked if str(path).startswith(str(tmp_path))]  # not those of modules
    assert 0 < len(below) < 50


@given(st.lists(st.integers(0, 10**7), unique=True), st.sampled_from(["", "frame_", "Video1_frame"]))
def test_natural_order_is_the_order_of_numbers(numbers: list[int], prefix: str) -> None:
    names = sorted((f"{prefix}{number}" for number in numbers), key=natural)
    assert [last_number(name) for name in names] == sorted(numbers)


@given(st.lists(st.text("019a_")), st.lists(st.integers(0, 999)))
def test_names_that_only_differ_in_digits_need_no_keys_to_be_in_order(names: list[str], numbers: list[int]) -> None:
    recorded = [f"frame_{number:03d}.png" for number in numbers]
    for mixed in (names, recorded, [*recorded, *names]):
        assert in_order(mixed) == sorted(mixed, key=natural)


def test_videos_that_names_tell_apart(tmp_path: Path) -> None:
    write_frames(tmp_path / "images", "caseA_0001", "caseA_0002", "caseA_0010", "caseB_0001", "caseB_0002", "0007")
    write_frames(tmp_path / "images/day2", "caseA_0001")
    for name in ("caseA_0010", "day2/caseA_0001", "caseB__frame_000001", "0007"):
        write_image(tmp_path / "masks" / f"{name}.png", 0)
    write_file(tmp_path, videos="images", videos_by="name", masks="masks", classes=CLASSES)
    dataset = load_dataset(tmp_path)
    assert {video.id: len(video) for video in dataset} == {"images": 1, "caseA": 3, "caseB": 2, "day2_caseA": 1}
    assert dataset.videos_by == "name"
    assert masks_of(dataset) == {"caseA": [2], "day2_caseA": [0], "caseB": [1], "images": [0]}
    assert [frame.number for frame in dataset["caseA"].frames] == [1, 2, 10]


def test_extracted_frames_as_a_dataset_of_their_own(tmp_path: Path) -> None:
    """The folder of `suture select`: their numbers are those of the video that they come from, not their places."""
    names = ("case03__frame_000001", "case03__frame_000002", "case04__frame_000000", "case04__frame_000009")
    write_frames(tmp_path / "images", *names)
    write_frames(tmp_path / "masks", *names)
    write_file(
        tmp_path, videos="images", videos_by="name", masks="masks", classes=[{"name": "all", "value": [9, 9, 9]}]
    )
    dataset = load_dataset(tmp_path)
    assert masks_of(dataset) == {"case03": [0, 1], "case04": [0, 1]}
    assert not dataset.doubtful_masks


@pytest.mark.parametrize(
    ("names", "videos"),
    [
        ("101_14100 101_14125 102_50 102_75", "101 102"),
        ("endovis_seq_1_frame000 endovis_seq_1_frame001 endovis_seq_2_frame000", "endovis_seq_1 endovis_seq_2"),
        ("a__frame_000001 a__frame_000120 b__frame_000001", "a b"),
        ("op1-1 op1-2 op2-1 op2-2", "op1 op2"),
        ("a_01_jpg.rf.0c12ab a_02_jpg.rf.77a1 b_01_jpg.rf.9f", "a b"),
        ("frame_0001 frame_0002 frame_0003", "images"),
        ("ck1x9z polyp", "ck1x9z polyp"),
    ],
)
def test_names_of_videos_before_the_numbers_of_frames(tmp_path: Path, names: str, videos: str) -> None:
    write_frames(tmp_path / "images", *names.split())
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    write_file(tmp_path, videos="images", videos_by="name")
    assert [video.id for video in load_dataset(tmp_path)] == videos.split()


def test_frames_and_masks_by_patterns(tmp_path: Path) -> None:
    for video in ("OP1", "OP2"):
        for number in ("01", "02"):
            write_image(tmp_path / f"{video}/Raw/img_{number}_raw.png", (9, 9, 9))
            write_image(tmp_path / f"{video}/Masks/img_{number}_instrument.png", 4)
    write_image(tmp_path / "OP2/Masks/img_02_class.png", 3)
    patterns = {"frames": "{video}/Raw/{frame}_raw.png", "masks": "{video}/Masks/{frame}_class.png"}
    write_file(tmp_path, classes=CLASSES, **patterns)
    dataset = load_dataset(tmp_path)
    assert {video.id: len(video) for video in dataset} == {"OP1": 2, "OP2": 2}
    assert masks_of(dataset) == {"OP2": [1]}
    assert dataset.read_mask(dataset["OP2"], 1).max() == 1
    assert dataset["OP1"].read(0).shape == (6, 8, 3)
    assert not dataset.unmatched_masks


def test_masks_of_video_files_by_a_pattern(tmp_path: Path) -> None:
    write_video(tmp_path / "videos" / "film.mp4")
    write_image(tmp_path / "labels/film/mask_7.png", 3, (32, 32))
    assert masks_of(load_masked(tmp_path, masks="labels/{video}/mask_{frame}.png")) == {"film": [7]}


@pytest.mark.parametrize("place", ["videos/M\udcfcller/1.png", "videos/a/\udce4.png", "videos/\udcf6.mp4"])
def test_a_name_that_is_not_utf_8_is_told(tmp_path: Path, place: str) -> None:
    """As it comes out of old zips: OpenCV would end the process without a word."""
    write_frames(tmp_path / "videos/b", "1")
    write_text(tmp_path / "videos/\udcfc/notes.txt", "Of no video.")
    load_dataset(tmp_path)
    write_text(tmp_path / place, "")
    with pytest.raises(UserError, match=r"\\x(fcller|e4\.png|f6\.mp4) is not UTF-8: rename it"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")])
def test_an_umlaut_may_be_one_character_or_two(tmp_path: Path, forms: tuple[str, str]) -> None:
    """As macOS and its zips write them; the names look alike, so that nobody could have told why no mask fits."""
    of_video, of_mask = (lambda name, form=form: normalize(form, name) for form in forms)
    write_frames(tmp_path / "videos" / of_video("Müller"), of_video("Bild_ä1"), of_video("Bild_ä2"))
    write_frames(tmp_path / "videos" / of_video("Größe"), *"123")
    write_frames(tmp_path / "videos/other", "5")
    masks = ["Müller__frame_000000", "Bild_ä2", "Größe/3"]
    for name in masks:
        write_image(tmp_path / "masks" / f"{of_mask(name)}.png", 3)
    cases, split = {"fall": [of_mask("Müller")]}, {"train": ["fall"], "test": [of_mask("Größe")]}
    write_file(tmp_path, videos="videos", masks="masks", classes=CLASSES, cases=cases, split=split)
    dataset = load_dataset(tmp_path)
    assert masks_of(dataset) == {of_video("Müller"): [0, 1], of_video("Größe"): [2]}
    assert (dataset.unmatched_masks, dataset.missing_videos) == ([], [])
    assert [dataset[of_video(name)].split for name in ("Müller", "Größe")] == ["train", "test"]


SIDES = [{"name": name, "value": value} for value, name in enumerate(("background", "left", "right"))]


@pytest.mark.parametrize(
    ("content", "mirror"),
    [({}, ()), ({"mirror": {"left": "right"}}, (0, 2, 1)), ({"mirror": {"left": "right"}, "flip": False}, None)],
)
def test_classes_swap_in_a_mirror_image(tmp_path: Path, content: dict[str, Any], mirror: tuple | None) -> None:
    write_frames(tmp_path / "videos" / "a", "0")
    write_file(tmp_path, videos="videos", classes=SIDES, **content)
    classes = load_dataset(tmp_path).classes
    assert classes.mirror == mirror
    if mirror is None:
        with pytest.raises(UserError, match="flip"):
            classes.flip_order()
    write_file(tmp_path, videos="videos", classes=SIDES)
    assert load_dataset(tmp_path, mirror={"right": "left"}).classes.flip_order() == (0, 2, 1)


@pytest.mark.parametrize("mirror", [{"left": "wrong"}, {"left": "right", "background": "left"}])
def test_wrong_mirror(tmp_path: Path, mirror: dict[str, str]) -> None:
    write_frames(tmp_path / "videos" / "a", "0")
    write_file(tmp_path, videos="videos", classes=SIDES, mirror=mirror)
    with pytest.raises(UserError, match="mirror"):
        load_dataset(tmp_path)


def test_swapped_splits_train_on_the_test_cases(tmp_path: Path) -> None:
    for name in "abc":
        write_frames(tmp_path / "videos" / name, "0")
    write_file(tmp_path, videos="videos", split={"train": ["a"], "val": ["b"], "test": ["c"]})
    assert [video.split for video in load_dataset(tmp_path, swap_splits=True)] == ["test", "val", "train"]


@pytest.mark.parametrize(
    ("name", "splits", "masks"),
    [
        ("clinicdb", {"train": 20, "val": 0, "test": 9}, 612),
        ("endovis15", {"train": 2, "val": 0, "test": 2}, 1495),
        ("larynx", {"train": 100, "val": 15, "test": 15}, 1300),
    ],
)
def test_real_data(name: str, splits: dict[Any, int], masks: int, shared: Path) -> None:
    if not (shared / "data" / name).is_dir():
        pytest.skip(f"needs the real {name}, which is not here")
    dataset = load_dataset(shared / "data" / name)
    assert {split: len(dataset.split(split)) for split in splits} == splits
    assert sum(len(video.with_mask) for video in dataset) == masks
    assert not dataset.unmatched_masks
    video = dataset.split("test")[0]
    ids = dataset.read_mask(video, video.with_mask[0])
    assert ids.shape[::-1] == video.size
    assert ids.max() < len(dataset.classes)
