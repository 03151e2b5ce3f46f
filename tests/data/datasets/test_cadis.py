import csv
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from source_tester import SourceTester, write_image, write_text

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.datasets.cadis import SPLIT, class_table


class TestCadis(SourceTester):
    name = "cadis"
    frames: ClassVar = {"Video01": 3, "Video02": 3, "Video05": 3, "Video12": 3}
    splits: ClassVar = {"train": {"Video01"}, "val": {"Video05"}, "test": {"Video02", "Video12"}}

    def make(self, root: Path) -> None:
        for number in (1, 2, 5, 12):
            for frame in (90, 100, 5210):
                name = f"Video{number}_frame{frame:06d}.png"
                write_image(root / f"Video{number:02d}" / "Images" / name, (9, 9, 9))
                write_image(root / f"Video{number:02d}" / "Labels" / name, number * 3 % 36)

    def test_frame_numbers(self, root: Path) -> None:
        assert [frame.number for frame in self.load(root)["Video12"].frames] == [90, 100, 5210]
        assert self.load(root).protocol == "cadis"

    @pytest.mark.parametrize("task", [0, 4, "1", True])
    def test_refuses_another_task(self, root: Path, task: object) -> None:
        with pytest.raises(UserError, match="it has the tasks 1"):
            load_dataset(root, task=task)

    def test_leaves_frames_out(self, root: Path, tmp_path: Path) -> None:
        write_text(tmp_path / "list.txt", "Video2_frame000100.png\n\nVideo12/Images/Video12_frame005210\n")
        dataset = load_dataset(root, leave_out=str(tmp_path / "list.txt"))
        assert {video.id: video.usable for video in dataset if video.excluded} == {"Video02": [0, 2], "Video12": [0, 1]}
        assert any("2 frames are left out" in note for note in dataset.notes)

    @pytest.mark.parametrize("content", ["Video2_frame000110", "9" * 5000, "2,100"])
    def test_refuses_a_bad_list(self, root: Path, tmp_path: Path, content: str) -> None:
        write_text(tmp_path / "list.txt", content)
        with pytest.raises(UserError, match=f"line 1 is .{content[:5]}"):
            load_dataset(root, leave_out=tmp_path / "list.txt")

    def test_refuses_a_video_twice(self, root: Path) -> None:
        write_image(root / "more" / "Video1" / "Images" / "Video1_frame000010.png")
        with pytest.raises(UserError, match="holds video 1 twice"):
            load_dataset(root)


@pytest.fixture(scope="module")
def whole(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Every frame number of the real dataset, all of them one tiny image."""
    root = tmp_path_factory.mktemp("cadis")
    write_image(root / "pixel.png", 7)
    with (shared / "data" / "cadis" / "frames.csv").open() as lines:
        for row in csv.DictReader(lines):
            number = int(row["video"])
            for kind in ("Images", "Labels"):
                folder = root / f"Video{number:02d}" / kind
                folder.mkdir(parents=True, exist_ok=True)
                os.link(root / "pixel.png", folder / f"Video{number}_frame{int(row['frame']):06d}.png")
    return load_dataset(root)


def test_whole_dataset(whole: Dataset) -> None:
    assert len(whole.videos) == 25
    frames: ClassVar = Counter({split: sum(map(len, whole.split(split))) for split in SPLIT})
    assert frames == {"train": 3550, "val": 534, "test": 586}
    assert sum(len(video.with_mask) for video in whole) == 4670


def test_labelled_counts_of_the_paper(whole: Dataset) -> None:
    for every, count in ((60, 67), (50, 80)):
        assert sum(len(range(0, len(video), every)) for video in whole.split("train")) == count


def test_largest_step_between_neighbours(whole: Dataset) -> None:
    numbers = [[frame.number for frame in video.frames] for video in whole]
    steps = [b - a for video in numbers for a, b in pairwise(video)]
    assert max(steps) == 5110
    assert min(steps) > 0


def test_class_tables() -> None:
    sizes = {task: len(class_table(task)) for task in (1, 2, 3)}
    assert sizes == {1: 8, 2: 17, 3: 25}
    for task in (1, 2, 3):
        table = class_table(task)
        assert set(table.values) == set(range(36))
        assert set(table.values.values()) - {IGNORE} == set(range(len(table)))
        assert len(set(table.colors)) == len(table)
    assert IGNORE not in class_table(1).values.values()
    ignored = {task: {raw for raw, target in class_table(task).values.items() if target == IGNORE} for task in (2, 3)}
    assert ignored == {2: {25, 26, 29, 30, 31, 34, 35}, 3: set(range(25, 36))}
    assert class_table(2).names[class_table(2).values[33]] == "Tissue Forceps"
    assert class_table(3).names[24] == "Lens Injector Handle"
