from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from source_tester import SourceTester, write_image

from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.datasets.endovis18 import COLORS, NAMES, TEST_FRAMES, TRAIN_FRAMES

RELEASES = {
    "miccai_challenge_2018_release_1": (1, 2, 3, 4),
    "miccai_challenge_release_2": (5, 6, 7),
    "miccai_challenge_release_3": (9, 10, 11, 12),
    "miccai_challenge_release_4": (13, 14, 15, 16),
}


def write_sequence(folder: Path, frames: int = 2, ids: bool = False) -> None:
    for number in range(frames):
        target = number % len(NAMES)
        write_image(folder / "left_frames" / f"frame{number:03d}.png", (9, 9, 9))
        if ids:
            write_image(folder / "labels" / f"grayframe{number:03d}.png", target)
        else:
            write_image(folder / "labels" / f"frame{number:03d}.png", COLORS[NAMES[target]])


class TestEndoVis18(SourceTester):
    """The release archives side by side, as they are when unpacked."""

    name = "endovis18"
    frames: ClassVar = {f"seq_{n}": 2 for n in TRAIN_FRAMES} | {f"test_seq_{n}": 2 for n in TEST_FRAMES}
    splits: ClassVar = {"train": {f"seq_{n}" for n in TRAIN_FRAMES}, "test": {f"test_seq_{n}" for n in TEST_FRAMES}}

    def make(self, root: Path) -> None:
        for release, numbers in RELEASES.items():
            for number in numbers:
                write_sequence(root / release / f"seq_{number}")
        for number in TEST_FRAMES:
            write_sequence(root / "test_data" / f"seq_{number}")

    def test_protocol_and_classes(self, root: Path) -> None:
        dataset = self.load(root)
        assert dataset.protocol == "endovis18"
        assert len(dataset.classes) == 12
        assert dataset.classes.names[8] == "suturing-needle"
        assert len(dataset.cases) == 19
        assert "15 training and 4 test sequences" in dataset.notes[0]


class TestMergedWithIds(SourceTester):
    """All sequences in one folder, masks turned to ids."""

    name = "endovis18"
    frames: ClassVar = {"seq_1": 13, "seq_16": 2, "test_seq_1": 2}
    splits: ClassVar = {"train": {"seq_1", "seq_16"}, "test": {"test_seq_1"}}

    def make(self, root: Path) -> None:
        write_sequence(root / "seq_1", frames=13, ids=True)
        write_sequence(root / "seq_16", ids=True)
        write_sequence(root / "Test" / "seq_1", ids=True)

    def test_ids_mean_the_classes(self, root: Path) -> None:
        dataset = self.load(root)
        assert [int(dataset.read_mask(dataset["seq_1"], i).max()) for i in range(13)] == [*range(12), 0]
        assert any("not here: 2, 3, 4" in note for note in dataset.notes)
        assert any("seq_1 has 13 frames, the release has 149" in note for note in dataset.notes)


def test_both_colours_of_the_thread(tmp_path: Path) -> None:
    write_sequence(tmp_path / "seq_1")
    write_image(tmp_path / "seq_1/labels/frame000.png", (128, 155, 25))
    write_image(tmp_path / "seq_1/labels/frame001.png", (187, 155, 25))
    dataset = load_dataset(tmp_path)
    for index in range(2):
        assert set(np.unique(dataset.read_mask(dataset["seq_1"], index))) == {NAMES.index("thread")}


def test_an_unknown_color_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_sequence(tmp_path / "seq_1")
    write_image(tmp_path / "seq_1/labels/frame001.png", (1, 2, 3))
    dataset = load_dataset(tmp_path)
    with pytest.raises(UserError, match=r"frame001\.png holds the value \(1, 2, 3\) \(48 pixels\)"):
        dataset.read_mask(dataset["seq_1"], 1)


def test_repairs_win_per_file(tmp_path: Path) -> None:
    write_sequence(tmp_path / "release_1" / "seq_3", frames=3)
    write_image(tmp_path / "repairs" / "seq_3" / "labels" / "frame001.png", COLORS["clamps"])
    dataset = load_dataset(tmp_path)
    found = [int(dataset.read_mask(dataset["seq_3"], index)[0, 0]) for index in range(3)]
    assert found == [0, NAMES.index("clamps"), 2]


def test_masks_of_an_archive_of_their_own(tmp_path: Path) -> None:
    write_sequence(tmp_path / "test_data" / "seq_1")
    (tmp_path / "test_data/seq_1/labels/frame000.png").unlink()
    write_image(tmp_path / "test_labels" / "seq_1" / "labels" / "frame000.png", COLORS["thread"])
    write_image(tmp_path / "test_labels" / "seq_1" / "labels" / "frame999.png", COLORS["thread"])
    dataset = load_dataset(tmp_path)
    assert dataset["test_seq_1"].with_mask == [0, 1]
    assert [Path(mask).name for mask in dataset.unmatched_masks] == ["frame999.png"]


@pytest.mark.parametrize(
    ("folders", "frames", "message"),
    [
        (["seq_1"], TEST_FRAMES[1], "seq_1 is not a sequence"),  # as long as a test sequence
        (["a/seq_3", "b/seq_3"], 2, "seq_3 is there twice"),
        (["seq_8"], 2, "seq_8 is not a sequence of EndoVis18.*1 to 7 and 9 to 16"),
    ],
)
def test_refuses_sequences_that_the_release_lacks(
    folders: list[str], frames: int, message: str, tmp_path: Path
) -> None:
    for folder in folders:
        write_sequence(tmp_path / folder, frames=frames)
    with pytest.raises(UserError, match=message):
        load_dataset(tmp_path)
