"""Videos as they lie on disk, and which of their frames the name of a mask means."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import overload

from suture.data.dataset import Frame, Mask
from suture.data.dataset_file import nearest
from suture.data.video import VIDEO_SUFFIXES, VideoFile
from suture.data.walk import images_of, last_number, walk
from suture.errors import UserError

_EXTRACTED = re.compile(r"(.+)__frame_([0-9]+)")
_NUMBERED = re.compile(r"(?:frame_?)?([0-9]+)")


class FileFrames(Sequence[Frame]):
    """The frames of a video file, made when asked for: the file is not even opened before its length is needed."""

    def __init__(self, file: VideoFile, masks: Mapping[int, Mask]) -> None:
        self.file = file
        self.masks = masks

    def __len__(self) -> int:
        return len(self.file)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        found = range(len(self))[index]
        return self._frame(found) if isinstance(found, int) else [self._frame(position) for position in found]

    def __iter__(self) -> Iterator[Frame]:
        return map(self._frame, range(len(self)))

    def _frame(self, index: int) -> Frame:
        return Frame(index, index, mask=self.masks.get(index))


@dataclass(eq=False)
class Clip:
    """A video as found on disk: a file, or a folder of frames."""

    parts: tuple[str, ...]
    """Its path from the folder of the videos, without suffix."""
    folder: Path
    images: Mapping[str, str]
    """The frames' files by their names without suffix."""
    file: VideoFile | None = None
    masks: dict[int, Mask] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return "_".join(self.parts)

    @property  # not __len__: it would open the file wherever a clip is asked whether it is None
    def length(self) -> int:
        return len(self.images) if self.file is None else len(self.file)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {stem: index for index, stem in enumerate(self.images)}

    def position(self, name: str) -> int | None:
        """The index of the frame that a mask's name means within this video."""
        if self.file is None:
            return self._positions.get(name)
        number = _NUMBERED.fullmatch(name)
        return int(number[1]) if number else None

    def frames(self) -> Sequence[Frame]:
        """The frames with the masks that were found."""
        if self.file is not None:
            return FileFrames(self.file, self.masks)
        folder, masks = f"{self.folder}{os.sep}", self.masks
        return [
            Frame(index, _number(stem, index), Path(folder + name), masks.get(index))
            for index, (stem, name) in enumerate(self.images.items())
        ]


def _number(stem: str, index: int) -> int:
    number = last_number(stem)
    return index if number is None else number


class Clips:
    """All videos, and which of them a name means."""

    def __init__(self, place: Path, skip: set[Path]) -> None:
        self.all = list(_find_clips(place, skip))
        if not self.all:
            raise UserError(f"{place} holds no videos: expected video files or folders of frames.")
        self._whole: dict[str, list[Clip]] = {}
        self._ends: dict[str, list[Clip]] = {}
        for clip in self.all:
            for name in {clip.id, "/".join(clip.parts)}:
                self._whole.setdefault(name, []).append(clip)
            for start in range(1, len(clip.parts)):
                self._ends.setdefault("/".join(clip.parts[start:]), []).append(clip)

    @cached_property
    def _by_frame(self) -> dict[str, list[tuple[Clip, int]]]:
        found: dict[str, list[tuple[Clip, int]]] = {}
        for clip in self.all:
            for index, stem in enumerate(clip.images):
                found.setdefault(stem, []).append((clip, index))
        return found

    def named(self, name: str) -> list[Clip]:
        """The videos that a name or a path may mean: one may be the end of the other, but they may not differ."""
        if name in self._whole or name in self._ends:
            return self._whole.get(name) or self._ends[name]
        while "/" in name and name not in self._whole:
            name = name.partition("/")[2]
        return self._whole.get(name, [])

    def one(self, name: str, where: str) -> Clip:
        """The video that `dataset.yaml` names."""
        found = self.named(name)
        if not found:
            raise UserError(f"{where} names the video {name!r}, which is not there{nearest(name, self._whole)}.")
        if len(found) > 1:
            ids = " and ".join(clip.id for clip in found)
            raise UserError(f"{where} names the video {name!r}, which fits {ids}: write one of these.")
        return found[0]

    def frame(self, name: str, only: Clip | None, mask: str) -> tuple[Clip, int] | None:
        """The frame that a mask's name means, within one video or among all."""
        folder, _, last = name.rpartition("/")
        found: list[tuple[Clip, int | None]]
        if only is not None:
            found = [(only, only.position(last))]
        elif folder:
            found = [(clip, clip.position(last)) for clip in self.named(folder)]
        else:
            found = [
                *self._by_frame.get(last, ()),
                *((clip, clip.position(last)) for clip in self.all if clip.file is not None),
            ]
        if extracted := _EXTRACTED.fullmatch(name) if "__frame_" in name else None:
            found += [(clip, int(extracted[2])) for clip in self.named(extracted[1]) if only in (None, clip)]
        fitting = {(clip, i) for clip, i in found if i is not None and (clip.file is not None or i < clip.length)}
        if len(fitting) > 1:
            names = " and ".join(sorted(f"{clip.id} (frame {index})" for clip, index in fitting)[:3])
            raise UserError(
                f"The mask {mask} fits {names}: name it VIDEO__frame_000120.png, or put it into a folder VIDEO."
            )
        return fitting.pop() if fitting else None


def _find_clips(place: Path, skip: set[Path]) -> Iterator[Clip]:
    """Every video file and every folder that holds images."""
    if place.is_file():
        if place.suffix.lower() not in VIDEO_SUFFIXES:
            raise UserError(
                f"{place} is not a video: expected a folder, or one of {', '.join(sorted(VIDEO_SUFFIXES))}."
            )
        yield Clip((place.stem,), place.parent, {}, VideoFile(place))
        return
    if not place.is_dir():
        raise UserError(f"{place}, the folder of the videos, does not exist.")
    for folder, folders, files in walk(place):
        folders[:] = [name for name in folders if folder / name not in skip]
        parts = folder.relative_to(place).parts
        if images := images_of(folder, files):
            yield Clip(parts or (place.resolve().name,), folder, images)
        for name in files:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in VIDEO_SUFFIXES:
                yield Clip((*parts, stem), folder, {}, VideoFile(folder / name))
