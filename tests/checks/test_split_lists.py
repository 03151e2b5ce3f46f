"""Lists of frames or videos for each split: the draft follows them, `check` reports what they divide."""

from pathlib import Path

import pytest
import yaml
from dataset_builders import numbered, write_frames

from suture.checks.check import check
from suture.checks.draft import write_draft
from suture.checks.problems import Problem
from suture.data.datasets import load_dataset


def write_lists(folder: Path, **lists: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        (folder / f"{name}.txt").write_text("\n".join(lines.split(";")))


def write_file(root: Path, content: str) -> None:
    (root / "dataset.yaml").write_text(content)


def split_of(root: Path) -> dict[str, list[str]]:
    return yaml.safe_load(write_draft(root, force=True).read_text()).get("split", {})


def problems(root: Path) -> dict[str, Problem]:
    return {problem.code: problem for problem in check(root, progress=False, workers=1).problems}


@pytest.mark.parametrize(
    ("place", "train", "val"),
    [
        (".", "caseA;caseB", "caseC"),  # videos
        ("splits", "caseA_0000;caseB_0002", "caseC_0000;caseC_0001"),  # frames
        ("ImageSets", "images/caseA_0000.png;images\\caseB_0002.png", "./images/caseC_0000.png"),
        ("ImageSets/Segmentation", "/images/caseA_0000.png /masks/caseA_0000.png;caseB.png;", "caseC_0001 1"),
    ],
)
def test_a_draft_follows_them(tmp_path: Path, place: str, train: str, val: str) -> None:
    write_frames(tmp_path / "images", *numbered("caseA", "caseB", "caseC", "caseD", separator="_"))
    write_lists(tmp_path / place, train=train, Validation=val)
    write_file(tmp_path, "videos_by: name")
    assert split_of(tmp_path) == {"train": ["caseA", "caseB"], "val": ["caseC"]}
    files = " and ".join(str(Path(place) / name) for name in ("Validation.txt", "train.txt"))
    text = (tmp_path / "dataset.yaml").read_text()
    assert f"split:  # guess: by {files}" in text
    assert f"{files} divide or do not name them: [caseD]" in text
    assert not problems(tmp_path).keys() - {"no-masks"}


def test_names_with_blanks_and_dots(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("case 1.2", "case 3"))
    write_lists(tmp_path, train="case 1.2", test="case 3")
    assert split_of(tmp_path) == {"train": ["case 1.2"], "test": ["case 3"]}


def test_they_count_before_the_names_of_folders(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "train1/1", "train2/1", "test1/1")
    write_lists(tmp_path, train="train1;test1", test="train2")
    assert split_of(tmp_path) == {"train": ["test1", "train1"], "test": ["train2"]}
    assert "misnamed-split" not in problems(tmp_path)


def test_a_note_counts_lines_and_what_they_name(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1", "b/2", "c/2")
    write_lists(tmp_path, train="a", test=f"b;{'9' * 5000};2")
    note = load_dataset(tmp_path).notes[-1]
    assert "test.txt and train.txt; they name 2 videos" in note
    assert "2 lines of none or several (first: test.txt: '99" in note
    assert len(note) < 300


@pytest.mark.parametrize("name", ["training", "tester", "notes"])
def test_lists_that_tell_no_splits_apart_are_none(tmp_path: Path, name: str) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a", **{name: "b"})
    assert not load_dataset(tmp_path).listed
    assert split_of(tmp_path) == {}


@pytest.mark.parametrize(
    ("split", "divided"),
    [
        ("  train: [a]  # guess\n  test: [b]  # guess", ("a", "c")),  # the draft's; c is left out
        ("  train: [a, c]\n  test: [b]  # guess", ()),
        ("  train: [a]\n  test: [b]  # guess", ("c",)),
        ("  train: [a, b]  # guess", ("a", "c")),
    ],
)
def test_a_divided_case_is_reported_until_its_split_is_stated(
    tmp_path: Path, split: str, divided: tuple[str, ...]
) -> None:
    write_frames(tmp_path / "videos", "a/1", "a/2", "b/3", "c/4", "c/5")
    write_lists(tmp_path, train="a/1;c/4", test="a/2;b;c/5")
    write_file(tmp_path, f"videos: videos\nsplit:  # guess: by test.txt and train.txt\n{split}\n")
    problem = problems(tmp_path).get("divided-by-list")
    assert tuple(place[0] for place in (problem.places if problem else ())) == divided


def test_a_case_that_they_divide_is_left_out_and_reported(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "op1_part1/1", "op1_part2/1", "op2/1", "op3/1")
    write_lists(tmp_path, train="op1_part1;op2", test="op1_part2;op3")
    assert split_of(tmp_path) == {"train": ["op2"], "test": ["op3"]}
    assert problems(tmp_path)["divided-by-list"].first == "op1: 1 line in train and 1 line in test"


@pytest.mark.parametrize(
    ("lists", "split", "places"),
    [
        ({"train": "a", "test": "b"}, "{train: [b], test: [a]}", ("a in test", "b in train")),
        ({"train": "a", "test": "b", "val": "c"}, "{train: [a], test: [c], val: [b]}", ("b in val",)),
        ({"train": "a", "test": "b", "val": "c"}, "{train: [c], test: [b], val: [a]}", ()),  # the test is as listed
        ({"train": "a", "val": "b"}, "{train: [a], test: [b]}", ()),  # val may be the test where there is no other
    ],
)
def test_a_split_against_the_lists_is_reported(
    tmp_path: Path, lists: dict[str, str], split: str, places: tuple[str, ...]
) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1", "c/1")
    write_lists(tmp_path, **lists)
    write_file(tmp_path, f"videos: videos\nsplit: {split}")
    problem = problems(tmp_path).get("misnamed-split")
    assert (problem.places if problem else ()) == places
