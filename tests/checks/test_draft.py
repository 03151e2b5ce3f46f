"""`suture check --write`: the draft loads back, marks its guesses, and keeps what the file says."""

import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from dataset_builders import HEIGHT, WIDTH, numbered, write, write_coco, write_frames, write_labelme, write_masks

from suture.checks.case_guesses import guess_cases, guess_split, splits_of_names
from suture.checks.check import check
from suture.checks.draft import draft_dataset_file, write_draft
from suture.checks.problems import Problem
from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.images import read_image
from suture.data.video_index import VideoEntry


def entries(*paths: str) -> list[VideoEntry]:
    return [VideoEntry(tuple(path.split("/")), Path(), {}) for path in paths]


def split_by_names(videos: list[VideoEntry]) -> dict[str, list[str]]:
    expected = {video: {split} for video, split in splits_of_names(videos).items()}
    return guess_split(expected, guess_cases(videos), Counter(video.id for video in videos))  # type: ignore[return-value]


def draft(root: Path, force: bool = False) -> dict:
    """Write a draft and read it."""
    return yaml.safe_load(write_draft(root, force).read_text())


def draft_over(root: Path, old: str) -> dict:
    """Complete a given dataset.yaml."""
    (root / "dataset.yaml").write_text(old)
    return draft(root, force=True)


def classes_of(content: dict) -> list[tuple]:
    return [(entry["name"], entry.get("value")) for entry in content["classes"]]


def problems(root: Path) -> dict[str, Problem]:
    return {problem.code: problem for problem in check(root, progress=False, workers=1).problems}


def test_a_folder_of_frames_and_id_masks(tmp_path: Path) -> None:
    names = numbered("case1_1", "case1_2", "case2", "case3", "case4")
    write_frames(tmp_path / "videos", *names)
    write_masks(tmp_path / "masks", *names, values=[0, 1, 7, 255])
    path = write_draft(tmp_path)
    text = path.read_text()
    content = yaml.safe_load(text)
    assert classes_of(content) == [("class_1", 1), ("class_7", 7), ("ignored", 255)]
    assert content["cases"] == {"case1": ["case1_1", "case1_2"]}
    assert "unpainted" not in content
    assert "# question: what do unpainted pixels mean (value 0" in text
    assert text.count("# guess") >= 8
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("class_1", "class_7")
    assert {video.split for video in dataset} == {"train", "test"}
    assert problems(tmp_path).keys() == {"unpainted", "guessed-case"}
    path.write_text(f"{text}unpainted: ignore\n".replace("[case1_1, case1_2]  # guess", "[case1_1, case1_2]"))
    assert not problems(tmp_path)


def test_a_mask_that_fits_two_videos_does_not_hinder_a_draft(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("one", "two"))
    write_masks(tmp_path / "masks", "one/0001", "two/0001", "0000")
    write_draft(tmp_path)
    assert "doubtful-mask" in problems(tmp_path)


def test_masks_among_the_frames(tmp_path: Path) -> None:
    """As CholecSeg8k is downloaded: of three kinds of masks the draft takes the one of ids that paints every pixel."""
    write_frames(tmp_path, *numbered("video01/video01_00080", "video01/video01_00160"))
    for frame in list(tmp_path.rglob("*.png")):
        ids = np.full((HEIGHT, WIDTH), 50, np.uint8)
        ids[10:20, 10:20] = 11
        write(frame.with_stem(f"{frame.stem}_color_mask"), np.stack([ids, ids // 2, ids], axis=2))
        write(frame.with_stem(f"{frame.stem}_mask"), np.where(ids == 11, 0, ids).astype(np.uint8))
        write(frame.with_stem(f"{frame.stem}_watershed_mask"), np.stack([ids] * 3, axis=2))
    assert problems(tmp_path)["no-dataset-file"].count == 18
    text = write_draft(tmp_path).read_text()
    assert "masks: '{video}/{frame}_watershed_mask.png'  # guess; also found: {video}/{frame}_color" in text
    report = check(tmp_path, progress=False, workers=1)
    assert (report.summary.frames, report.summary.labelled, report.fatal) == (6, 6, False)


@pytest.mark.parametrize(
    ("raw", "mask"),
    [
        ("{video}/frames/{frame}.png", "{video}/masks/{frame}.png"),
        ("{video}/{frame}.png", "{video}/masks/{frame}.png"),
        ("{video}/Raw/{frame}_raw.png", "{video}/Masks/{frame}_class.png"),
        ("rgb/{video}/{frame}_raw.png", "labels of Ann/{video}/{frame}.png"),
        ("Raw/{frame}_raw.png", "Class/{frame}_mask.png"),
    ],
)
def test_masks_in_folders_of_their_own(tmp_path: Path, raw: str, mask: str) -> None:
    operations = ("opA", "opB", "opC") if "{video}" in raw else ("all",)
    names = [(video, f"img_{number:02}") for video in operations for number in range(3)]
    write_frames(tmp_path, *(raw.format(video=v, frame=f).removesuffix(".png") for v, f in names))
    write_masks(tmp_path, *(mask.format(video=v, frame=f).removesuffix(".png") for v, f in names))
    assert f'`masks: "{mask}"`' in problems(tmp_path)["masks-for-frames"].fix
    content = draft(tmp_path)
    assert (content.get("frames", raw), content["masks"]) == (raw, mask)
    report = check(tmp_path, progress=False, workers=1)
    assert (len(report.summary.videos), report.summary.labelled) == (len(operations), 3 * len(operations))
    assert (report.summary.frames, report.fatal) == (report.summary.labelled, False)


def test_coco_among_the_frames(tmp_path: Path) -> None:
    """As Endoscapes is downloaded."""
    write_frames(tmp_path, *numbered("train", "test"))
    for video in ("train", "test"):
        write_coco(tmp_path / video / "annotation_coco.json", "0001.png")
    (tmp_path / "train" / "camera.json").write_text("{}")
    assert draft(tmp_path)["masks"] == {"train": "train/annotation_coco.json", "test": "test/annotation_coco.json"}
    dataset = load_dataset(tmp_path)
    assert [video.with_mask for video in dataset] == [[1], [1]]
    assert len(dataset.notes) == 1
    assert "camera.json" in dataset.notes[0]


def test_coco_among_the_frames_of_several_videos(tmp_path: Path) -> None:
    """As Roboflow exports it."""
    for split, videos in {"train": "ab", "test": "cd"}.items():
        write_frames(tmp_path / split, *numbered(*videos, separator="_"))
        write_coco(tmp_path / split / "_annotations.coco.json", f"{videos[0]}_0001.png")
    assert draft_over(tmp_path, "videos_by: name")["masks"] == [
        "test/_annotations.coco.json",
        "train/_annotations.coco.json",
    ]
    dataset = load_dataset(tmp_path)
    assert {video.id: video.with_mask for video in dataset if video.with_mask} == {"train_a": [1], "test_c": [1]}


@pytest.mark.parametrize("white", [255, (255, 255, 255)])
def test_white_alone_on_black_is_a_class(tmp_path: Path, white: int | tuple[int, ...]) -> None:
    write_frames(tmp_path / "videos", *numbered("a", "b"))
    write_masks(tmp_path / "masks", *numbered("a", "b"), values=[np.zeros_like(white), white])
    text = write_draft(tmp_path).read_text()
    assert "# guess: the name; 10.42%" in text or "# guess: the name; 7.81%" in text
    (tmp_path / "dataset.yaml").write_text(f"{text}unpainted: background\n")
    assert load_dataset(tmp_path).classes.names == ("background", "foreground")
    assert not problems(tmp_path)


def test_colour_masks(tmp_path: Path) -> None:
    write_frames(tmp_path / "frames", *numbered("a", "b", "c"))
    write_masks(tmp_path / "labels", *numbered("a", "b", "c"), values=[(9, 9, 9), (0, 255, 0), (255, 0, 4)])
    write_draft(tmp_path)
    dataset = load_dataset(tmp_path)
    assert set(dataset.classes.values) == {(9, 9, 9), (0, 255, 0), (255, 0, 4)}
    assert dataset.classes.colors[0] == (0, 255, 0)
    assert not problems(tmp_path)


def test_anti_aliased_masks_give_no_classes(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    write(tmp_path / "masks/a/0000.png", np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8))
    text = draft_dataset_file(tmp_path)
    assert "values are too many for classes" in text
    assert "classes" not in yaml.safe_load(text)


def test_classes_are_drafted_from_the_masks_that_are_not_compressed(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    write_masks(tmp_path / "masks", *numbered("a"), values=[(0, 0, 0), (0, 255, 0), (255, 0, 0)])
    path = tmp_path / "masks/a/0001.png"
    write(path.with_suffix(".jpg"), read_image(path))
    path.unlink()
    text = draft_dataset_file(tmp_path)
    assert classes_of(yaml.safe_load(text)) == [("class_1", [0, 255, 0]), ("class_2", [255, 0, 0])]
    assert "# 1 JPEG mask left out (first: 0001.jpg)" in text


def test_values_drafted_later_have_names_and_colours_of_their_own(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    for values in ([(0, 0, 0), (0, 255, 0)], [(0, 0, 0), (0, 255, 0), (255, 0, 0)]):
        write_masks(tmp_path / "masks", *numbered("a"), values=values)
        write_draft(tmp_path, force=True)
    assert load_dataset(tmp_path).classes.names == ("class_1", "class_2")
    write_masks(tmp_path / "masks", *numbered("a"), values=[0, 1, 2, 3])
    (tmp_path / "dataset.yaml").unlink()
    first = {entry["name"]: entry["color"] for entry in draft(tmp_path)["classes"]}
    old = yaml.safe_dump({"classes": [{"name": "class_3", "value": 3, "color": first["class_3"]}]})
    colors = [entry["color"] for entry in draft_over(tmp_path, old)["classes"]]
    assert len({*map(tuple, colors)}) == 3


def test_masks_in_which_nothing_is_painted(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    write_masks(tmp_path / "masks", *numbered("a"), values=[0])
    assert "# classes:  # question" in write_draft(tmp_path).read_text()
    with pytest.raises(UserError, match="names masks but no classes"):
        load_dataset(tmp_path)


def test_a_cvat_export_gives_its_labels(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    mask = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    mask[:20] = (250, 50, 83)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("labelmap.txt", "# label:color\nbackground:0,0,0::\nneedle driver:250,50,83::\n")
        archive.writestr("SegmentationClass/0001.png", cv2.imencode(".png", mask[..., ::-1])[1].tobytes())
    content = draft(tmp_path)
    assert content["masks"] == "a.zip"
    assert classes_of(content) == [("needle driver", None)]
    assert load_dataset(tmp_path)["a"].with_mask == [1]


def test_a_coco_file_gives_its_categories(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    (tmp_path / "notes.json").write_text("{}")
    write_coco(tmp_path / "coco.json", "a/0002.png", "clip applier")
    write_draft(tmp_path)
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("clip applier",)
    assert dataset["a"].with_mask == [2]


def test_labels_that_differ_in_capitals_only_are_reported(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    for index, label in enumerate(("Grasper", "grasper", "liver")):
        write_labelme(tmp_path / f"masks/a/{index:04}.json", label)
    path = write_draft(tmp_path)
    text = f"{path.read_text()}\nunpainted: background\n"
    path.write_text(text)
    assert problems(tmp_path)["class-alike"].what.endswith("Grasper and grasper")
    path.write_text(text.replace("name: grasper,", "name: grasper, merge: Grasper,"))
    report = check(tmp_path, progress=False, workers=1)
    assert "class-alike" not in {problem.code for problem in report.problems}
    assert report.class_table["Grasper"]["train"].frames == 2


def test_names_that_need_quotes_survive(tmp_path: Path) -> None:
    names = {"2023-01-14", "007", "yes", "a: b # c"}
    write_frames(tmp_path / "videos", *numbered(*names))
    write_draft(tmp_path)
    assert {video.id for video in load_dataset(tmp_path)} == names


def test_the_view_is_found_and_written_down(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a", "b"))
    for path in (tmp_path / "videos/a").iterdir():
        image = read_image(path)
        image[:, :12] = image[:, -12:] = 0
        write(path, image)
    view = draft(tmp_path)["view"]
    assert list(view) == ["a"]
    x, y, width, height = view["a"]["rect"]
    assert (y, height) == (0, HEIGHT)
    assert abs(x - 12) <= 2
    assert abs(width - 40) <= 4


def test_nothing_is_written_over_unless_forced(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    path = write_draft(tmp_path)
    path.write_text("name: mine")
    with pytest.raises(UserError, match="--force"):
        write_draft(tmp_path)
    assert path.read_text() == "name: mine"
    write_draft(tmp_path, force=True)
    assert "format: 1\nname: mine\n" in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_forced_it_keeps_what_the_file_says_and_drafts_the_rest(tmp_path: Path) -> None:
    write_frames(tmp_path / "footage", *numbered("a", "b", "c"))
    write_masks(tmp_path / "masks", *numbered("a", "c"), values=[0, 1, 7])
    old = {
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
    content = draft_over(tmp_path, yaml.safe_dump(old))
    new = content["classes"].pop()
    assert new == {"name": "class_7", "value": 7, "color": [230, 159, 0]}  # the first colour that is free
    assert {key: content[key] for key in old} == old
    assert content["masks"] == "masks"
    assert content["split"] == {"train": ["c"], "test": ["op"]}
    assert draft(tmp_path, force=True)["classes"] == [*old["classes"], new]


def test_forced_it_leaves_a_guess_marked_until_somebody_answers_it(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("case1_1", "case1_2", "case2"))
    write_masks(tmp_path / "masks", *numbered("case1_1", "case2"), values=[0, 1, 7])
    path = write_draft(tmp_path)
    text = re.sub(r"  test: \[case2\].*", "  test: [case2]", path.read_text())
    text = re.sub(r"name: class_1, value: 1, (.*\}).*", r"name: 'no # guess', value: 1, \1", text)
    path.write_text(text)
    for _ in range(2):
        lines = write_draft(tmp_path, force=True).read_text().splitlines()
        guessed = {line.split("  # guess")[0].strip() for line in lines if "  # guess" in line}
        assert {"videos: videos", "masks: masks", "cases:", "case1: [case1_1, case1_2]", "split:"} < guessed
        assert {"train: [case1]", "- {name: class_7, value: 7, color: [86, 180, 233]}"} < guessed
        assert "  test: [case2]" in lines
        assert "  - {name: 'no # guess', value: 1, color: [230, 159, 0]}" in lines


@pytest.mark.parametrize("old", ["name: mine", "classes:\n- name: liver\n  value: 1", "format: 1"])
def test_forced_it_reads_a_file_in_any_style(tmp_path: Path, old: str) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    assert yaml.safe_load(old).items() <= draft_over(tmp_path, old).items()


def test_a_file_with_a_mistake_is_not_written_over_even_by_force(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a"))
    with pytest.raises(UserError, match=r"did you mean name\?.*remove the file"):
        draft_over(tmp_path, "nmae: mine")
    assert (tmp_path / "dataset.yaml").read_text() == "nmae: mine"


def test_a_known_dataset_needs_no_draft(tmp_path: Path) -> None:
    write_frames(tmp_path, *numbered("img/patient1/seq1", "annot/patient1/seq1"))
    with pytest.raises(UserError, match="vocalfolds"):
        write_draft(tmp_path)
    assert not (tmp_path / "dataset.yaml").exists()


def test_an_empty_folder_has_no_draft(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no videos"):
        write_draft(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("paths", "cases"),
    [
        ("case1 case2 case3", {"case1": 1, "case2": 1, "case3": 1}),
        ("video_1 video_2 video_3", {"video_1": 1, "video_2": 1, "video_3": 1}),
        ("op_07_1 op_07_2 op_08_1", {"op_07": 2, "op_08_1": 1}),
        ("lap-Part1 lap-part2 lap_b", {"lap": 2, "lap_b": 1}),
        ("case01a case01b case02 case03b", {"case01": 2, "case02": 1, "case03b": 1}),
        ("GX01 GX01_1 GX02", {"GX01": 2, "GX02": 1}),
        ("2023-01-14 2023-01-20", {"2023-01-14": 1, "2023-01-20": 1}),
        ("ann/1 ann/2 bob/1", {"ann": 2, "bob_1": 1}),
        ("site/ann site/bob", {"site_ann": 1, "site_bob": 1}),
        ("train/seq_1 test/seq_1", {"train_seq_1": 1, "test_seq_1": 1}),
        (
            "train1/op_1/left train1/op_2/left train2/op_1/left train2/op_1/right test/op_1/left",
            {"train1_op_1_left": 1, "train1_op_2_left": 1, "train2_op_1": 2, "test_op_1_left": 1},
        ),
        ("ann/train ann/test bob/train bob/test", {"ann": 2, "bob": 2}),
        ("train1/left train1/right test1/left test1/right", {"train1": 2, "test1": 2}),
        ("center1_001 center1_002 center2_001", {"center1": 2, "center2_001": 1}),
        ("video01_00080 video01_00160 video17_01563", {"video01": 2, "video17_01563": 1}),
        ("video01 video01_00160 video17_01563", {"video01": 2, "video17_01563": 1}),
        ("test/video01_00080 test/video01_00160 train/video17_01563", {"test_video01": 2, "train_video17_01563": 1}),
        ("video01_00080 video01_00160", {"video01_00080": 1, "video01_00160": 1}),
        ("clip_001 clip_002", {"clip_001": 1, "clip_002": 1}),
    ],
)
def test_cases_guessed_from_names(paths: str, cases: dict[str, int]) -> None:
    assert {case: len(videos) for case, videos in guess_cases(entries(*paths.split())).items()} == cases


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, (0, 0, 0)), (2, (1, 0, 1)), (4, (3, 0, 1)), (5, (3, 1, 1)), (10, (6, 2, 2))]
)
def test_split_by_case(count: int, sizes: tuple[int, int, int]) -> None:
    videos = entries(*(f"case{number}" for number in range(count)))
    split = split_by_names(videos)
    assert tuple(len(split[name]) for name in ("train", "val", "test")) == sizes
    assert sum(map(len, split.values())) in (0, count)


def test_what_is_held_out_has_labels() -> None:
    videos = entries(*(f"case{number}" for number in range(20)))
    labelled = {f"case{number}" for number in range(3, 8)}
    split = guess_split({}, guess_cases(videos), Counter(labelled))
    assert set(split["val"] + split["test"]) < labelled
    assert len(split["train"]) == 18


def test_no_split_is_drafted_before_two_cases_have_labels(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("a", "b", "c"))
    write_masks(tmp_path / "masks", "a/0000")
    assert "split" not in draft(tmp_path)
    assert {video.split for video in load_dataset(tmp_path)} == {"train"}
    write_masks(tmp_path / "masks", "b/0000", "c/0000")
    content = draft(tmp_path, force=True)
    assert content["split"] == {"train": ["a", "c"], "test": ["b"]}


@pytest.mark.parametrize(
    ("paths", "split"),
    [
        ("train/a train/b Validation/c test/d", "train train val test"),
        ("images/train images/val images/test", "train val test"),
        ("test train val", "test train val"),
        ("train_seg train2 data_train Testing-1 test_video_41 valset", "train train train test test val"),
        ("train1/video_1/left train2/video_2/left test/video_41/left", "train train test"),
        ("train1 train2 test1 trainer testis", "train train test - -"),
    ],
)
def test_names_of_videos_and_folders_that_say_a_split_are_believed(paths: str, split: str) -> None:
    videos = entries(*paths.split())
    of_case = {case: name for name, cases in split_by_names(videos).items() for case in cases}
    assert [of_case.get(case, "-") for case in guess_cases(videos)] == split.split()


@pytest.mark.parametrize(
    "paths",
    ["test1 test2 test3", "case1 case2 leak_test", "trainer testis valve", "ann/train ann/test bob/train bob/test"],
)
def test_words_that_tell_no_splits_apart_are_none(paths: str) -> None:
    videos = entries(*paths.split())
    split = split_by_names(videos)
    assert (len(split["train"]), len(split["test"])) == (len(guess_cases(videos)) - 1, 1)


def test_a_case_that_says_two_splits_is_asked_about(tmp_path: Path) -> None:
    write_frames(tmp_path / "videos", *numbered("train1", "train2", "test1"))
    assert draft_over(tmp_path, "cases: {ann: [train2, test1]}")["split"] == {"train": ["train1"]}


def test_frames_of_many_videos_in_one_folder_are_asked_about(tmp_path: Path) -> None:
    """The chunks of one operation are named just as several operations are."""
    names = numbered("caseA", "caseB", "op7_part1", "op7_part2", separator="_")
    write_frames(tmp_path / "images", *names)
    write_masks(tmp_path / "masks", *names)
    text = write_draft(tmp_path).read_text()
    assert "# question: are caseA, caseB, op7_part1 and 1 more of several operations?" in text
    assert "several-operations" in problems(tmp_path)
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    content = draft_over(tmp_path, "videos_by: name")
    assert content["cases"] == {"op7": ["op7_part1", "op7_part2"]}
    assert content["split"] == {"train": ["caseA", "op7"], "test": ["caseB"]}
    report = check(tmp_path, progress=False, workers=1)
    assert [video.id for video in report.summary.videos] == ["caseA", "caseB", "op7_part1", "op7_part2"]
    assert report.summary.labelled == 12
    assert [problem.code for problem in report.problems] == ["guessed-case"]


def test_a_folder_does_not_join_what_the_user_has_told_apart(tmp_path: Path) -> None:
    write_frames(tmp_path / "stills", *numbered("PatA", "PatB", separator="_"))
    write_frames(tmp_path, *numbered("other"))
    assert "cases" not in draft_over(tmp_path, "videos_by: name\n"), "each is one of its own"
    assert sorted(load_dataset(tmp_path).cases) == ["other", "stills_PatA", "stills_PatB"]


def test_guessed_cases_are_reported_until_somebody_has_answered(tmp_path: Path) -> None:
    """Four operations in one folder, beside another video: nothing else says why the split keeps them together."""
    write_frames(tmp_path, *numbered("new/a", "new/b", "new/c", "new/d", "old"))
    path = write_draft(tmp_path)
    problem = problems(tmp_path)["guessed-case"]
    assert (problem.severity, problem.count) == ("note", 4)
    assert problem.first == "new (new_a, new_b, new_c and new_d)"
    path.write_text(path.read_text().replace("new: [new_a, new_b, new_c, new_d]  # guess", "new: [new_a, new_b]"))
    assert "guessed-case" not in problems(tmp_path)
    shutil.rmtree(tmp_path / "old")
    path.write_text("cases:\n  new: [a, b, c, d]  # guess\n")
    assert problems(tmp_path)["guessed-case"].severity == "warning", "there is nothing left to test on"


@pytest.mark.parametrize(
    "names",
    [
        "part1_0001 part1_0002 part2_0001 part2_0002",
        "10_000 10_250 11_000 11_250",
        "L_0001 L_0002 R_0001 R_0002",
        "op_3_07 op_3_08 op_4_07 op_4_08",
    ],
)
def test_one_operation_does_not_become_several_videos_by_a_guess(tmp_path: Path, names: str) -> None:
    write_frames(tmp_path / "images", *names.split())
    assert [video.id for video in load_dataset(tmp_path)] == ["images"]
    assert "of several operations?" in write_draft(tmp_path).read_text()


def test_a_file_that_names_its_videos_is_not_asked_how_they_are_told_apart(tmp_path: Path) -> None:
    write_frames(tmp_path / "images", *numbered("caseA", "caseB", separator="_"))
    assert "videos_by" not in draft_over(tmp_path, "videos: images\ncases: {op: [images]}")
    assert list(load_dataset(tmp_path).cases) == ["op"]


def test_a_split_of_folders_by_video_is_followed(tmp_path: Path) -> None:
    for split, videos in {"train": "ab", "valid": "c", "test": "d"}.items():
        write_frames(tmp_path / "images" / split, *numbered(*videos, separator="_"))
    content = draft_over(tmp_path, "videos_by: name")
    assert content["split"] == {"train": ["train_a", "train_b"], "val": ["valid_c"], "test": ["test_d"]}


def test_a_split_of_folders_by_frame_is_not_followed(tmp_path: Path) -> None:
    """As Roboflow splits: one operation in train and test gives wrong scores."""
    write_frames(tmp_path / "images/train", "a_001", "a_003", "b_001", "b_002", "c_001", "c_002")
    write_frames(tmp_path / "images/test", "a_002", "a_004", "b_003", "b_004", "d_001", "d_002")
    content = draft_over(tmp_path, "videos_by: name")
    assert content["cases"] == {"a": ["test_a", "train_a"], "b": ["test_b", "train_b"]}
    assert content["split"] == {"train": ["train_c"], "test": ["test_d"]}
