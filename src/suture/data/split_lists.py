"""Lists of the frames or videos of each split: `train.txt`, `val.txt`, `test.txt`."""

import os
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suture.core.io import read_text, suffix_of
from suture.core.text import listed, number, short
from suture.data.dataset import Split, is_split_word, splits_by_name
from suture.data.images import IMAGE_SUFFIXES
from suture.data.video import VIDEO_SUFFIXES
from suture.data.video_index import VideoIndex

_FOLDERS = (".", "splits", "ImageSets/Segmentation", "ImageSets")
"""Folders that are searched; the first one that has lists of several splits counts."""
_SUFFIX = ".txt"


@dataclass(frozen=True)
class SplitLists:
    """The lists of a dataset, and what they name among its videos."""

    files: Sequence[str] = ()
    """Paths below the dataset's root."""
    splits: Mapping[str, Counter[Split]] = field(default_factory=dict)
    """Video → how many lines of each split name it or one of its frames."""
    unknown: Sequence[str] = ()
    """Lines that name no frame and no video, or several."""

    @staticmethod
    def find(root: Path, videos: VideoIndex) -> "SplitLists":
        """Find the lists of a folder; none if they tell no splits apart."""
        for folder in (root / name for name in _FOLDERS):
            split_of = splits_by_name({name: name for name in _named_as_splits(folder)})
            if split_of:
                return _read(
                    {os.path.relpath(folder / name, root): split for name, split in split_of.items()}, root, videos
                )
        return SplitLists()

    @property
    def notes(self) -> list[str]:
        """A sentence on the lists, if there are any."""
        if not self.files:
            return []
        note = f"Lists of splits: {listed(self.files)}; they name {number(len(self.splits), 'video')} or frames of them"
        if self.unknown:
            note += f"; {number(len(self.unknown), 'line')} of none or several (first: {self.unknown[0]})"
        return [f"{note}."]


def _read(split_of: Mapping[str, Split], root: Path, videos: VideoIndex) -> SplitLists:
    """Look up what the lines name: the whole line, or its first word if a mask or a label follows."""
    lines = {file: read_text(root / file, "a list of names").splitlines() for file in split_of}
    names = {_plain(name) for of_file in lines.values() for line in of_file for name in _candidates(line)}
    whole = {name: named[0].id for name in names if len(named := videos.named(name)) == 1}
    frames = videos.match([name for name in names if name not in whole], None)
    video_of = whole | {name: places[0][0].id for name, places in frames if len(places) == 1}
    splits: dict[str, Counter[Split]] = {}
    unknown = []
    for file, of_file in lines.items():
        for line in filter(str.strip, of_file):
            if video := next((video_of[n] for n in map(_plain, _candidates(line)) if n in video_of), None):
                splits.setdefault(video, Counter())[split_of[file]] += 1
            else:
                unknown.append(f"{file}: {short(line)}")
    return SplitLists(list(split_of), splits, unknown)


def _named_as_splits(folder: Path) -> list[str]:
    """The text files of a folder that are called after a split and nothing else."""
    try:
        texts = [name for name in os.listdir(folder) if suffix_of(name) == _SUFFIX]
    except OSError:  # no folder, or reported by whoever must read it
        return []
    return [name for name in sorted(texts) if is_split_word(name[: -len(_SUFFIX)]) and (folder / name).is_file()]


def _candidates(line: str) -> list[str]:
    return [line.strip(), *line.split()[:1]]


def _plain(name: str) -> str:
    """A name as those of videos and masks are: a path with slashes, without suffix."""
    path = posixpath.normpath(name.replace("\\", "/")).lstrip("/")
    return posixpath.splitext(path)[0] if suffix_of(path) in IMAGE_SUFFIXES | VIDEO_SUFFIXES else path
