"""Lists of frames or videos for each split: the draft follows them, `check` tells what they divide."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from suture.checks.check import check
from suture.checks.draft import write_draft
from suture.checks.problems import Problem
from suture.data.datasets import load_dataset


def write_frames(root: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        path = root / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), np.random.default_rng(seed).integers(40, 216, (24, 32, 3), dtype=np.uint8))


def write_masks(root: Path, *names: str) -> None:
    mask = np.full((24, 32), 2, np.uint8)
    mask[5:15, 10:20] = 1
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(root / f"{name}.png"), mask)


def write_lists(folder: Path, **lists: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        (folder / f"{name}.txt").write_text("\n".join(lines.split(";")))


def numbered(*videos: str) -> list[str]:
    return [f"{video}_{index:04}" for video in videos for index in range(3)]


def split_of(root: Path) -> dict[str, list[str]]:
    return yaml.safe_load(write_draft(root).read_text()).get("split", {})


def problems(root: Path) -> dict[str, Problem]:
    return {problem.code: problem for problem in check(root, progress=False, workers=1).problems}


@pytest.mark.parametrize("place", [".", "splits", "ImageSets", "ImageSets/Segmentation"])
@pytest.mark.parametrize(
    "lines",
    [
        ("caseA;caseB", "caseC"),  # videos
        ("caseA_0000;caseB_0002", "caseC_0000;caseC_0001"),  # frames
        ("images/caseA_0000.png;images\\caseB_0002.png", "./images/caseC_0000.png"),
        ("/images/caseA_0000.png /masks/caseA_0000.png;/images/caseB_0000.png /masks/caseB_0000.png", "caseC_0001 1"),
        ("caseA.png;;caseB.png;", "caseC.png;"),
    ],
)
def test_a_draft_follows_them(tmp_path: Path, place: str, lines: tuple[str, str]) -> None:
    write_frames(tmp_path / "images", *numbered("caseA", "caseB", "caseC", "caseD"))
    write_lists(tmp_path / place, train=lines[0], Validation=lines[1])
    text = write_draft(tmp_path).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["caseA", "caseB"], "val": ["caseC"]}
    files = [str(Path(place) / name) for name in ("Validation.txt", "train.txt")]
    assert f"split:  # guess: by {' and '.join(files)}" in text
    assert f"which {' and '.join(files)} divide or do not name? They are left out: [caseD]" in text
    assert not problems(tmp_path).keys() - {"no-masks"}


def test_names_with_blanks_and_dots(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "case 1.2/1", "case 1.2/2", "case 3/1", "case 3/2")
    write_lists(tmp_path, train="case 1.2", test="case 3")
    assert split_of(tmp_path) == {"train": ["case 1.2"], "test": ["case 3"]}


def test_they_count_before_the_names_of_folders(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "train1/1", "train2/1", "test1/1")
    write_lists(tmp_path, train="train1;test1", test="train2")
    assert split_of(tmp_path) == {"train": ["test1", "train1"], "test": ["train2"]}
    assert "misnamed-split" not in problems(tmp_path)


def test_what_was_found_is_told(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1", "b/2")
    write_lists(tmp_path, train="a", test="b;c")
    assert load_dataset(tmp_path).notes[0] == (
        "Lists of splits: test.txt (2 lines) and train.txt (1 line); they name 2 videos or frames of them; 1 line of "
        "none or several (first: test.txt: c)."
    )
    write_lists(tmp_path, train="x", test="2")
    (tmp_path / "videos/c").mkdir()
    write_frames(tmp_path / "videos/c", "2")
    assert load_dataset(tmp_path).notes[0] == (
        "Lists of splits: test.txt (1 line) and train.txt (1 line); they name 0 videos or frames of them; 2 lines of "
        "none or several (first: test.txt: 2)."
    )
    assert split_of(tmp_path) == {}


@pytest.mark.parametrize("name", ["training", "tester", "notes"])
def test_lists_that_tell_no_splits_apart_are_none(tmp_path: Path, name: str) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a", **{name: "b"})
    assert not load_dataset(tmp_path).listed
    assert split_of(tmp_path) == {}


def test_a_file_that_is_no_list_is_no_reason_to_refuse(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a")
    (tmp_path / "test.txt").write_bytes(b"gepr\xfcft\n")
    assert "they name 1 video or frames of them; 1 line of none" in load_dataset(tmp_path).notes[0]


@pytest.mark.parametrize("log", ["a done in 12 s;b done in 9 s", "a 0.83;b 0.9", "a: 3;b: 4", "a OK;b OK"])
def test_a_log_whose_lines_begin_with_names_is_no_list(tmp_path: Path, log: str) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a;b", test=log)
    assert {video: dict(found) for video, found in load_dataset(tmp_path).listed.items()} == {
        "a": {"train": 1},
        "b": {"train": 1},
    }
    assert f"2 lines of none or several (first: test.txt: {log.split(';')[0]})" in load_dataset(tmp_path).notes[0]


def test_lists_as_windows_writes_them(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    (tmp_path / "Train.TXT").write_bytes("a\r\n".encode("utf-16"))
    (tmp_path / "test.txt").write_bytes(b"\xef\xbb\xbfb\r\n\r\n")
    (tmp_path / "val.txt").mkdir()
    assert split_of(tmp_path) == {"train": ["a"], "test": ["b"]}


def test_a_video_that_they_divide_is_left_out_and_told(tmp_path: Path) -> None:
    names = numbered("caseA", "caseB", "caseC")
    write_frames(tmp_path / "images", *names)
    write_masks(tmp_path / "masks", *names)
    write_lists(tmp_path, train="caseA_0000;caseA_0001;caseB", test="caseA_0002;caseC")
    text = write_draft(tmp_path).read_text()
    assert "videos_by" not in yaml.safe_load(text)  # names and lists contradict each other
    (tmp_path / "dataset.yaml").write_text("videos_by: name")
    text = write_draft(tmp_path, force=True).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["caseB"], "test": ["caseC"]}
    assert "which test.txt and train.txt divide or do not name? They are left out: [caseA]" in text
    problem = problems(tmp_path)["divided-by-list"]
    assert (problem.severity, problem.count) == ("warning", 1)
    assert problem.what == "1 case that the lists divide: by them, what was learnt from would be scored"
    assert problem.first == "caseA: 2 lines in train and 1 line in test"


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("  train: [a]  # guess\n  test: [b]  # guess", ("a", "c")),  # the draft's; c is left out
        ("  train: [a, c]\n  test: [b]  # guess", ()),
        ("  train: [a]\n  test: [b]  # guess", ("c",)),
        ("  train: [a]\n  test: [b]", ()),
        ("  train: [a, b]  # guess, kept", ("a", "c")),
    ],
)
def test_the_warning_ends_with_the_answer(tmp_path: Path, split: str, told: tuple[str, ...]) -> None:
    write_frames(tmp_path / "videos", "a/1", "a/2", "b/3", "c/4", "c/5")
    write_lists(tmp_path, train="a/1;c/4", test="a/2;b;c/5")
    (tmp_path / "dataset.yaml").write_text(f"videos: videos\nsplit:  # guess: by test.txt and train.txt\n{split}\n")
    found = problems(tmp_path).get("divided-by-list")
    assert tuple(place[0] for place in (found.places if found else ())) == told


def test_a_case_that_they_divide_by_videos_is_told(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "op1_part1/1", "op1_part2/1", "op2/1")
    write_lists(tmp_path, train="op1_part1;op2", test="op1_part2")
    assert split_of(tmp_path) == {"train": ["op2"]}
    assert problems(tmp_path)["divided-by-list"].first == "op1: 1 line in train and 1 line in test"


def test_lists_that_divide_every_case_are_not_followed(tmp_path: Path) -> None:
    names = numbered("caseA", "caseB")
    write_frames(tmp_path / "images", *names)
    write_masks(tmp_path / "masks", *names)
    write_lists(tmp_path, train=";".join(names[::2]), test=";".join(names[1::2]))
    assert split_of(tmp_path) == {"train": ["images"]}
    assert problems(tmp_path)["divided-by-list"].first == "images: 3 lines in train and 3 lines in test"
    (tmp_path / "dataset.yaml").write_text("videos_by: name")
    text = write_draft(tmp_path, force=True).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["caseA"], "test": ["caseB"]}
    assert "not by test.txt and train.txt: frames of one case would be in several splits, and scores wrong" in text
    assert problems(tmp_path)["divided-by-list"].count == 2


def test_frames_of_one_folder_that_names_do_not_tell_apart_are_one_video(tmp_path: Path) -> None:
    """A split of the frames of one video, be it by halves, is no reason to make several of it."""
    write_frames(tmp_path / "images", "12-30-01", "12-30-02", "12-31-01", "12-31-02")
    write_lists(tmp_path, train="12-30-01;12-30-02", test="12-31-01;12-31-02")
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    assert problems(tmp_path)["divided-by-list"].first == "images: 2 lines in train and 2 lines in test"


def test_single_images_are_videos_if_lists_split_them(tmp_path: Path) -> None:
    """Nothing else says that they are not of one video."""
    write_frames(tmp_path / "images", "ck1x9z", "ck1u8", "ck1u7ab", "polyp")
    assert len(load_dataset(tmp_path).videos) == 1
    write_lists(tmp_path, train="ck1x9z;ck1u8", test="ck1u7ab;polyp")
    text = write_draft(tmp_path).read_text()
    assert (
        "videos_by: name  # guess: ck1u7ab, ck1u, ck1x9z and 1 more, by what stands before the numbers of images"
        in text
    )
    assert yaml.safe_load(text)["split"] == {"train": ["ck1u", "ck1x9z"], "test": ["ck1u7ab", "polyp"]}
    assert len(load_dataset(tmp_path).videos) == 4


def test_a_split_against_the_lists_is_told(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a", test="b")
    (tmp_path / "dataset.yaml").write_text("videos: videos\nsplit: {train: [b], test: [a]}")
    assert problems(tmp_path)["misnamed-split"].places == ("a in test", "b in train")


def test_test_and_val_that_have_changed_places_are_told(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1", "c/1")
    write_lists(tmp_path, train="a", test="b", val="c")
    (tmp_path / "dataset.yaml").write_text("videos: videos\nsplit: {train: [a], test: [c], val: [b]}")
    assert problems(tmp_path)["misnamed-split"].places == ("b in val", "c in test")
    (tmp_path / "dataset.yaml").write_text("videos: videos\nsplit: {train: [c], test: [b], val: [a]}")
    assert "misnamed-split" not in problems(tmp_path)  # the test is that of the lists


def test_val_may_be_the_test_where_there_is_no_other(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a", val="b")
    (tmp_path / "dataset.yaml").write_text("videos: videos\nsplit: {train: [a], test: [b]}")
    assert "misnamed-split" not in problems(tmp_path)
