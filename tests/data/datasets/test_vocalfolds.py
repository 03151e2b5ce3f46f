from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from source_tester import SourceTester, write_image

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.datasets import load_dataset

ALL = {f"seq{n}" for n in range(1, 9)}


class TestSequences(SourceTester):
    name = "vocalfolds"
    frames: ClassVar = dict.fromkeys(sorted(ALL), 2)
    splits: ClassVar = {"train": ALL - {"seq2", "seq4", "seq7"}, "test": {"seq2", "seq4", "seq7"}}

    def make(self, root: Path) -> None:
        for sequence in range(1, 9):
            place = f"patient{1 if sequence < 5 else 2}/seq{sequence}"
            for number in (9, 1010):
                name = f"{number:04d}{'_l' if sequence in (4, 5, 6) else ''}"
                write_image(root / "img" / place / f"{name}{'.jpg' if sequence % 2 else '.png'}", (9, 9, 9))
                write_image(root / "annot" / place / f"{name}.png", sequence % 7)

    def test_cases_are_patients(self, root: Path) -> None:
        dataset = self.load(root)
        assert {case: [video.id for video in videos] for case, videos in dataset.cases.items()} == {
            "patient1": ["seq1", "seq2", "seq3", "seq4"],
            "patient2": ["seq5", "seq6", "seq7", "seq8"],
        }

    def test_void_is_ignore(self, root: Path) -> None:
        dataset = self.load(root)
        assert set(np.unique(dataset.read_mask(dataset["seq7"], 0))) == {IGNORE}
        assert set(np.unique(dataset.read_mask(dataset["seq8"], 0))) == {0}

    def test_frame_numbers(self, root: Path) -> None:
        assert [frame.number for frame in self.load(root)["seq4"].frames] == [9, 1010]

    def test_refuses_wrong_options(self, root: Path) -> None:
        for options in ({"protocol": "random"}, {"test_patient": 1}, {"protocol": "patients", "test_patient": 3}):
            with pytest.raises(UserError):
                load_dataset(root, "vocalfolds", **options)

    def test_masks_without_a_frame(self, root: Path) -> None:
        (root / "img/patient1/seq1/0009.jpg").unlink()
        (root / "annot/patient1/seq2/0009.png").unlink()
        dataset = self.load(root)
        assert [Path(mask).name for mask in dataset.unmatched_masks] == ["0009.png"]
        assert dataset["seq2"].with_mask == [1]

    def test_refuses_a_sequence_of_the_other_patient(self, root: Path) -> None:
        (root / "img/patient1/seq4").rename(root / "img/patient1/seq5")
        with pytest.raises(UserError, match="seq5 is not a sequence of vocalfolds: patient 1 has seq1"):
            self.load(root)


class TestPatients(TestSequences):
    options: ClassVar = {"protocol": "patients", "test_patient": 1}
    splits: ClassVar = {"train": {"seq5", "seq6", "seq7", "seq8"}, "test": {"seq1", "seq2", "seq3", "seq4"}}

    def test_the_other_way_round(self, root: Path) -> None:
        dataset = load_dataset(root, protocol="patients")
        assert {video.case for video in dataset.split("test")} == {"patient2"}


def test_real_data(shared: Path) -> None:
    folder = shared / "data" / "vocalfolds"
    if not folder.is_dir():
        pytest.skip("needs the real vocalfolds in ../shared/data")
    dataset = load_dataset(folder)
    assert [len(video) for video in dataset] == [32, 34, 26, 66, 26, 44, 122, 186]
    assert sum(map(len, dataset.split("train"))) == 314
    assert sum(map(len, dataset.split("test"))) == 222
    assert len(dataset.cases) == 2
    assert all(len(video.with_mask) == len(video) for video in dataset)
    assert not dataset.unmatched_masks
    assert dataset["seq7"].frames[-1].number == 580
    assert dataset["seq8"].frames[0].number == 581
    assert dataset["seq1"].size == (512, 512)

    pixels = np.zeros((8, 256), np.int64)
    for row, video in zip(pixels, dataset, strict=True):
        for index in range(len(video)):
            row += np.bincount(dataset.read_mask(video, index).ravel(), minlength=256)
    pathology = dataset.classes.names.index("pathology")
    assert [bool(count) for count in pixels[:, pathology]] == [True, True] + [False] * 6
    assert pixels[:, IGNORE].sum() / pixels.sum() == pytest.approx(0.034, abs=0.001)
    assert pixels[:, [*range(6), IGNORE]].sum() == pixels.sum() == 536 * 512 * 512
