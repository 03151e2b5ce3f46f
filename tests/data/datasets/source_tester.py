"""What every source must do, checked on a miniature of the layout that its dataset really has."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
from PIL import Image

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import SPLITS, Dataset, Split
from suture.data.datasets import load_dataset
from suture.data.images import MaskFile
from suture.data.video import VideoFile

SIZE = (8, 6)


def write_image(path: Path, value: Any = 0, size: tuple[int, int] = SIZE) -> None:
    """Write a plain image: grey for a number, RGB for a colour, or the array as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(value, np.ndarray):
        value = np.full((size[1], size[0], 3)[: 3 if isinstance(value, tuple) else 2], value, np.uint8)
    Image.fromarray(value).save(path)


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def facts(dataset: Dataset) -> list[Any]:
    """Everything that a source says of a dataset, for comparison."""
    videos = [(v.id, v.case, v.split, v.view_setting, v.excluded, list(v.frames)) for v in dataset.videos]
    return [dataset.name, dataset.classes, dataset.protocol, dataset.notes, dataset.unmatched_masks, videos]


class SourceTester(ABC):
    """Inherit, say how the miniature is made and what is in it, and these tests run on it."""

    name: ClassVar[str]
    frames: ClassVar[dict[str, int]]
    """How many frames each video has."""
    splits: ClassVar[dict[Split, set[str]]]
    options: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def make(self, root: Path) -> None:
        """Write the miniature."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        root = tmp_path / "data"
        self.make(root)
        return root

    def load(self, root: Path) -> Dataset:
        return load_dataset(root, self.name, **self.options)

    def test_is_recognised(self, root: Path) -> None:
        assert facts(load_dataset(root, **self.options)) == facts(self.load(root))

    def test_counts(self, root: Path) -> None:
        assert {video.id: len(video) for video in self.load(root)} == self.frames

    def test_splits(self, root: Path) -> None:
        dataset = self.load(root)
        found = {split: {video.id for video in dataset.split(split)} for split in SPLITS}
        assert {split: videos for split, videos in found.items() if videos} == self.splits
        dataset.require_whole_cases()
        assert bool(dataset.divided_cases) == dataset.divides_cases

    def test_frames_are_in_order(self, root: Path) -> None:
        for video in self.load(root):
            assert [frame.index for frame in video.frames] == list(range(len(video)))
            numbers = [frame.number for frame in video.frames]
            assert numbers == sorted(numbers)
            assert video.with_mask == sorted(video.with_mask)

    def test_every_frame_and_mask_decodes(self, root: Path) -> None:
        dataset = self.load(root)
        assert any(video.with_mask for video in dataset)
        for video in dataset:
            for index in range(len(video)):
                assert video.read(index).shape == (video.size[1], video.size[0], 3)
            for index in video.with_mask:
                ids = dataset.read_mask(video, index)
                assert ids.dtype == np.uint8
                assert set(np.unique(ids)) <= {*range(len(dataset.classes)), IGNORE}

    def test_loads_the_same_again(self, root: Path) -> None:
        assert facts(self.load(root)) == facts(self.load(root))

    def test_decodes_nothing_at_load(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("a file was decoded")

        monkeypatch.setattr(cv2, "imread", refuse)
        monkeypatch.setattr(Image, "open", refuse)
        monkeypatch.setattr(VideoFile, "read", refuse)
        monkeypatch.setattr(VideoFile, "frames", refuse)
        monkeypatch.setattr(VideoFile, "size", property(refuse))
        self.load(root)

    @pytest.mark.parametrize("option", ["colour", "root", "source"])
    def test_refuses_an_unknown_option(self, option: str, root: Path) -> None:
        with pytest.raises(UserError, match=f"The source {self.name} has no option '{option}'"):
            load_dataset(root, self.name, **{option: 1})

    def test_refuses_an_empty_folder(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(UserError, match="expected"):
            self.load(tmp_path / "empty")

    def test_names_a_truncated_mask(self, root: Path) -> None:
        dataset = self.load(root)
        video, mask = next(
            (video, frame.mask) for video in dataset for frame in video.frames if isinstance(frame.mask, MaskFile)
        )
        content = mask.path.read_bytes()
        mask.path.unlink()
        mask.path.write_bytes(content[: len(content) * 2 // 3])
        index = next(frame.index for frame in video.frames if frame.mask == mask)
        with pytest.raises(UserError, match=mask.path.name):
            dataset.read_mask(video, index)
