"""Lists of the frames or videos of each split: `train.txt`, `val.txt`, `test.txt`."""

import codecs
import os
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.text import listed, number
from suture.data.dataset import Split, is_split_word, splits_by_name
from suture.data.images import IMAGE_SUFFIXES
from suture.data.video import VIDEO_SUFFIXES
from suture.data.video_index import VideoIndex

_FOLDERS = (".", "splits", "ImageSets/Segmentation", "ImageSets")
"""Folders that are searched; the first one that has lists of several splits counts."""
_SUFFIX = ".txt"
_MEDIA_SUFFIXES = IMAGE_SUFFIXES | VIDEO_SUFFIXES
_COLUMN = re.compile(rf"-?[0-9]+|.*[/\\].*|.*(?:{'|'.join(map(re.escape, sorted(_MEDIA_SUFFIXES)))})", re.IGNORECASE)
"""Text that may stand behind a name: a whole number, or a path. Other words make a line that of a log."""


@dataclass(frozen=True)
class SplitLists:
    """The lines of each list, and what they name among the videos."""

    lines: Mapping[str, Sequence[str]]
    """Path of the list below the dataset's root → its lines."""
    splits: Mapping[str, Counter[Split]] = field(default_factory=dict)
    """Video → how many lines of each split name it or one of its frames."""
    unknown: Sequence[str] = ()
    """Lines that name no frame and no video, or several."""

    @staticmethod
    def find(root: Path) -> "SplitLists":
        """Find the lists of a folder; none if they tell no splits apart."""
        for folder in (root / name for name in _FOLDERS):
            files = _named_as_splits(folder)
            if splits_by_name({name: name for name in files}):
                return SplitLists({os.path.relpath(folder / name, root): _read_lines(folder / name) for name in files})
        return SplitLists({})

    def among(self, videos: VideoIndex) -> "SplitLists":
        """Look up what the lines name."""
        names = {line: _names(line) for lines in self.lines.values() for line in lines}
        video_of = _videos_of({name for of_line in names.values() for name in of_line}, videos)
        split_of = splits_by_name({file: posixpath.basename(file) for file in self.lines})
        splits: dict[str, Counter[Split]] = {}
        unknown = []
        for file, lines in self.lines.items():
            for line in lines:
                if video := next((video_of[name] for name in names[line] if name in video_of), None):
                    splits.setdefault(video, Counter())[split_of[file]] += 1
                else:
                    unknown.append(f"{file}: {line}")
        return SplitLists(self.lines, splits, unknown)

    @property
    def divide_no_video(self) -> bool:
        """True for lists of whole videos, be it frame by frame."""
        return bool(self.splits) and all(len(counts) == 1 for counts in self.splits.values())

    @property
    def notes(self) -> list[str]:
        """A sentence on the lists, if there are any."""
        if not self.lines:
            return []
        files = listed([f"{file} ({number(len(lines), 'line')})" for file, lines in self.lines.items()])
        note = f"Lists of splits: {files}; they name {number(len(self.splits), 'video')} or frames of them"
        if self.unknown:
            note += f"; {number(len(self.unknown), 'line')} of none or several (first: {self.unknown[0]})"
        return [f"{note}."]


def _named_as_splits(folder: Path) -> list[str]:
    """The text files of a folder that are called after a split and nothing else."""
    try:
        texts = [name for name in os.listdir(folder) if suffix_of(name) == _SUFFIX]
    except OSError:  # reported by whoever must read the folder
        return []
    return [name for name in sorted(texts) if is_split_word(name[: -len(_SUFFIX)]) and (folder / name).is_file()]


def _read_lines(path: Path) -> list[str]:
    """The lines of a list; of a file that is something else, lines that name nothing."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its permissions, or remove it.") from error
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    lines = content.decode(encoding, errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _names(line: str) -> list[str]:
    """The names that a line may hold: all of it, or its first word if a mask or numbers follow.

    >>> _names("images/a_1.png masks/a_1.png"), _names("a_1 -1"), _names("a_1 is blurred"), _names("a_1 0.83")
    (['images/a_1.png masks/a_1', 'images/a_1'], ['a_1 -1', 'a_1'], ['a_1 is blurred'], ['a_1 0.83'])
    """
    first, *columns = line.split()
    named = [line, first] if columns and all(map(_COLUMN.fullmatch, columns)) else [line]
    return [_plain(name) for name in named]


def _plain(name: str) -> str:
    """A name as those of videos and masks are: a path with slashes, without suffix."""
    path = posixpath.normpath(name.replace("\\", "/")).lstrip("/")
    return posixpath.splitext(path)[0] if suffix_of(path) in _MEDIA_SUFFIXES else path


def _videos_of(names: set[str], videos: VideoIndex) -> dict[str, str]:
    """The video that each name means or has a frame of, where it is one only."""
    whole = {name: named[0].id for name in names if len(named := videos.named(name)) == 1}
    frames = videos.match([name for name in names if name not in whole], None)
    return whole | {name: places[0][0].id for name, places in frames if len(places) == 1}
