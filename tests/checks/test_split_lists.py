"""Lists of frames or videos for each split: the draft follows them, `check` reports what they divide."""

from pathlib import Path

import pytest
import yaml
from dataset_builders import numbered, write_frames, write_masks

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


def split_of(root: Path, force: bool = False) -> dict[str, list[str]]:
    return yaml.safe_load(write_draft(root, force).read_text()).get("split", {})


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
    write_frames(tmp_path / "images", *numbered("caseA", "caseB", "caseC", "caseD", separator="_"))
    write_lists(tmp_path / place, train=lines[0], Validation=lines[1])
    text = write_draft(tmp_path).read_text()
    assert yaml.safe_load(text)["split"] == {"train": ["caseA", "caseB"], "val": ["caseC"]}
    files = " and ".join(str(Path(place) / name) for name in ("Validation.txt", "train.txt"))
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
    write_lists(tmp_path, train="a", test="b;x;2")
    (note,) = load_dataset(tmp_path).notes[:1]
    assert "test.txt (3 lines) and train.txt (1 line); they name 2 videos" in note
    assert "2 lines of none or several (first: test.txt: x)" in note
    write_lists(tmp_path, train="x", test="2")
    assert split_of(tmp_path) == {}


@pytest.mark.parametrize("name", ["training", "tester", "notes"])
def test_lists_that_tell_no_splits_apart_are_none(tmp_path: Path, name: str) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a", **{name: "b"})
    assert not load_dataset(tmp_path).listed
    assert split_of(tmp_path) == {}


@pytest.mark.parametrize("log", [b"a done in 12 s\nb done in 9 s", b"a 0.83\nb 0.9", b"gepr\xfcft\nb OK"])
def test_a_file_that_is_no_list_names_nothing(tmp_path: Path, log: bytes) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    write_lists(tmp_path, train="a;b")
    (tmp_path / "test.txt").write_bytes(log)
    dataset = load_dataset(tmp_path)
    assert {video: dict(counts) for video, counts in dataset.listed.items()} == {"a": {"train": 1}, "b": {"train": 1}}
    assert "2 lines of none or several" in dataset.notes[0]


def test_lists_as_windows_writes_them(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "a/1", "b/1")
    (tmp_path / "Train.TXT").write_bytes("a\r\n".encode("utf-16"))
    (tmp_path / "test.txt").write_bytes(b"\xef\xbb\xbfb\r\n\r\n")
    (tmp_path / "val.txt").mkdir()
    assert split_of(tmp_path) == {"train": ["a"], "test": ["b"]}


def test_a_video_that_they_divide_is_left_out_and_reported(tmp_path: Path) -> None:
    names = numbered("caseA", "caseB", "caseC", separator="_")
    write_frames(tmp_path / "images", *names)
    write_masks(tmp_path / "masks", *names)
    write_lists(tmp_path, train="caseA_0000;caseA_0001;caseB", test="caseA_0002;caseC")
    assert "videos_by" not in yaml.safe_load(write_draft(tmp_path).read_text())  # names and lists contradict each other
    write_file(tmp_path, "videos_by: name")
    assert split_of(tmp_path, force=True) == {"train": ["caseB"], "test": ["caseC"]}
    problem = problems(tmp_path)["divided-by-list"]
    assert (problem.severity, problem.count) == ("warning", 1)
    assert problem.first == "caseA: 2 lines in train and 1 line in test"


@pytest.mark.parametrize(
    ("split", "divided"),
    [
        ("  train: [a]  # guess\n  test: [b]  # guess", ("a", "c")),  # the draft's; c is left out
        ("  train: [a, c]\n  test: [b]  # guess", ()),
        ("  train: [a]\n  test: [b]  # guess", ("c",)),
        ("  train: [a]\n  test: [b]", ()),
        ("  train: [a, b]  # guess", ("a", "c")),
    ],
)
def test_the_warning_ends_with_the_answer(tmp_path: Path, split: str, divided: tuple[str, ...]) -> None:
    write_frames(tmp_path / "videos", "a/1", "a/2", "b/3", "c/4", "c/5")
    write_lists(tmp_path, train="a/1;c/4", test="a/2;b;c/5")
    write_file(tmp_path, f"videos: videos\nsplit:  # guess: by test.txt and train.txt\n{split}\n")
    problem = problems(tmp_path).get("divided-by-list")
    assert tuple(place[0] for place in (problem.places if problem else ())) == divided


def test_a_case_that_they_divide_by_videos_is_reported(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", "op1_part1/1", "op1_part2/1", "op2/1")
    write_lists(tmp_path, train="op1_part1;op2", test="op1_part2")
    assert split_of(tmp_path) == {"train": ["op2"]}
    assert problems(tmp_path)["divided-by-list"].first == "op1: 1 line in train and 1 line in test"


def test_lists_that_divide_every_case_are_not_followed(tmp_path: Path) -> None:
    names = numbered("caseA", "caseB", separator="_")
    write_frames(tmp_path / "images", *names)
    write_masks(tmp_path / "masks", *names)
    write_lists(tmp_path, train=";".join(names[::2]), test=";".join(names[1::2]))
    assert split_of(tmp_path) == {}
    assert problems(tmp_path)["divided-by-list"].first == "images: 3 lines in train and 3 lines in test"
    write_file(tmp_path, "videos_by: name")
    assert split_of(tmp_path, force=True) == {"train": ["caseA"], "test": ["caseB"]}
    assert problems(tmp_path)["divided-by-list"].count == 2


def test_frames_of_one_folder_that_names_do_not_tell_apart_are_one_video(tmp_path: Path) -> None:
    """A split of the frames of one video, be it by halves, is no reason to make several of it."""
    write_frames(tmp_path / "images", "12-30-01", "12-30-02", "12-31-01", "12-31-02")
    write_lists(tmp_path, train="12-30-01;12-30-02", test="12-31-01;12-31-02")
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]


def test_single_images_are_videos_if_lists_split_them(tmp_path: Path) -> None:
    write_frames(tmp_path / "images", "ck1x9z", "ck1u8", "ck1u7ab", "polyp")
    assert len(load_dataset(tmp_path).videos) == 1
    write_lists(tmp_path, train="ck1x9z;ck1u8", test="ck1u7ab;polyp")
    content = yaml.safe_load(write_draft(tmp_path).read_text())
    assert content["videos_by"] == "name"
    assert content["split"] == {"train": ["ck1u", "ck1x9z"], "test": ["ck1u7ab", "polyp"]}
    assert len(load_dataset(tmp_path).videos) == 4


@pytest.mark.parametrize(
    ("lists", "split", "places"),
    [
        ({"train": "a", "test": "b"}, "{train: [b], test: [a]}", ("a in test", "b in train")),
        ({"train": "a", "test": "b", "val": "c"}, "{train: [a], test: [c], val: [b]}", ("b in val", "c in test")),
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
