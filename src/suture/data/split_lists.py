"""Lists of the frames or videos of each split, as datasets bring them: `train.txt`, `val.txt`, `test.txt`."""

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

_PLACES = (".", "splits", "ImageSets/Segmentation", "ImageSets")
"""Where they usually lie; the first place that has lists of several splits counts."""
_SUFFIX = ".txt"
_OF_FRAMES = IMAGE_SUFFIXES | VIDEO_SUFFIXES
_COLUMN = re.compile(rf"-?[0-9]+|.*[/\\].*|.*(?:{'|'.join(map(re.escape, sorted(_OF_FRAMES)))})", re.IGNORECASE)
"""What may stand behind a name: a whole number, or a path. Other words make a line that of a log."""


@dataclass(frozen=True)
class SplitLists:
    """The lines of each list, and what they name among the videos."""

    lines: Mapping[str, Sequence[str]]
    """By the names of the files, as seen from the dataset's root."""
    splits: Mapping[str, Counter[Split]] = field(default_factory=dict)
    """Video → how many lines of each split name it or one of its frames."""
    unknown: Sequence[str] = ()
    """Lines that name no frame and no video, or several."""

    @staticmethod
    def find(root: Path) -> "SplitLists":
        """The lists of a folder, before anything is known of its videos; none where they do not tell splits apart."""
        for place in (root / place for place in _PLACES):
            files = _named_as_splits(place)
            if splits_by_name({name: name for name in files}):
                return SplitLists({os.path.relpath(place / name, root): _lines(place / name) for name in files})
        return SplitLists({})

    def among(self, clips: VideoIndex) -> "SplitLists":
        """The same with what the lines name."""
        names = {line: _names(line) for lines in self.lines.values() for line in lines}
        videos = _videos({name for found in names.values() for name in found}, clips)
        said = splits_by_name({file: posixpath.basename(file) for file in self.lines})
        splits: dict[str, Counter[Split]] = {}
        unknown = []
        for file, lines in self.lines.items():
            for line in lines:
                if video := next((videos[name] for name in names[line] if name in videos), None):
                    splits.setdefault(video, Counter())[said[file]] += 1
                else:
                    unknown.append(f"{file}: {line}")
        return SplitLists(self.lines, splits, unknown)

    @property
    def divide_no_video(self) -> bool:
        """Whether they are lists of whole videos, be it frame by frame."""
        return bool(self.splits) and all(len(found) == 1 for found in self.splits.values())

    @property
    def notes(self) -> list[str]:
        """What was found."""
        if not self.lines:
            return []
        files = listed([f"{file} ({number(len(lines), 'line')})" for file, lines in self.lines.items()])
        found = f"Lists of splits: {files}; they name {number(len(self.splits), 'video')} or frames of them"
        lost = [
            f"{number(len(self.unknown), 'line')} of none or several (first: {first})" for first in self.unknown[:1]
        ]
        return [f"{'; '.join([found, *lost])}."]


def _named_as_splits(place: Path) -> list[str]:
    """The text files of a folder that are called after a split and nothing else; it may hold a million frames."""
    try:
        texts = [name for name in os.listdir(place) if suffix_of(name) == _SUFFIX]
    except OSError:  # of a folder that must be read, whoever does so tells it
        return []
    return [name for name in sorted(texts) if is_split_word(name[: -len(_SUFFIX)]) and (place / name).is_file()]


def _lines(path: Path) -> list[str]:
    """A file that is something else has lines that name nothing, which is told; no reason to refuse the dataset."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its permissions, or remove it.") from error
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    lines = content.decode(encoding, errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _names(line: str) -> list[str]:
    """What a line may name: all of it; or its first word, if what lists have stands behind it, be it a mask or numbers.

    >>> _names("images/a_1.png masks/a_1.png"), _names("a_1 -1"), _names("a_1 is blurred"), _names("a_1 0.83")
    (['images/a_1.png masks/a_1', 'images/a_1'], ['a_1 -1', 'a_1'], ['a_1 is blurred'], ['a_1 0.83'])
    """
    first, *columns = line.split()
    named = [line, first] if columns and all(map(_COLUMN.fullmatch, columns)) else [line]
    return [_plain(name) for name in named]


def _plain(name: str) -> str:
    """A name as those of videos and masks are: a path with slashes, without suffix."""
    path = posixpath.normpath(name.replace("\\", "/")).lstrip("/")
    return posixpath.splitext(path)[0] if suffix_of(path) in _OF_FRAMES else path


def _videos(names: set[str], clips: VideoIndex) -> dict[str, str]:
    """The video that each name means or has a frame of, where it is one only."""
    found = {name: named[0].id for name in names if len(named := clips.named(name)) == 1}
    frames = clips.frames([name for name in names if name not in found], None)
    return found | {name: places[0][0].id for name, places in frames if len(places) == 1}
