"""The videos of a folder as they lie on disk, and the frames that the names of masks mean."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.schemas import require_no_run
from suture.data.dataset import Frame, Frames, Mask
from suture.data.dataset_file import nearest
from suture.data.listing import (
    VIDEO_FOLDERS,
    before_number,
    composed,
    images_of,
    iterate_folders,
    last_number,
    masks_beside,
    require_utf8_names,
)
from suture.data.video import VIDEO_SUFFIXES, VideoFile

_EXTRACTED = re.compile(r"(.+)__frame_([0-9]{1,18})")
_UPLOADED = re.compile(r"(?:.*/)?[0-9a-f]{8}-(.+)")
"""Label Studio puts eight digits before the name of a file that is uploaded."""
RECORD = "prediction.json"
"""File in a folder of predictions that are complete."""
JOURNAL = ".journal.jsonl"
"""File in a folder of predictions from their start on."""
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "annot", "SegmentationClass")
COMMON_FOLDERS = frozenset({*VIDEO_FOLDERS, *MASK_FOLDERS})
"""Folders whose names are those of no video."""
_FRAME_NUMBER = re.compile(r"(?:frame_?)?([0-9]{1,18})")


class FileFrames(Frames):
    """The frames of a video file, which is opened when its length is needed."""

    def __init__(self, file: VideoFile, masks: Mapping[int, Mask]) -> None:
        super().__init__(masks)
        self.file = file

    def __len__(self) -> int:
        return len(self.file)

    def make(self, index: int) -> Frame:
        return Frame(index, index, mask=self.masks.get(index))


class FolderFrames(Frames):
    """The frames of a folder of images."""

    def __init__(self, folder: Path, names: Iterable[str], masks: Mapping[int, Mask]) -> None:
        super().__init__(masks)
        self.folder = f"{folder}{os.sep}"
        self.names = list(names)

    def __len__(self) -> int:
        return len(self.names)

    def make(self, index: int) -> Frame:
        name = self.names[index]
        number = last_number(os.path.splitext(name)[0])
        return Frame(index, index if number is None else number, Path(self.folder + name), self.masks.get(index))

    @property
    def images(self) -> list[str]:
        return [self.folder + name for name in self.names]


@dataclass(eq=False)
class VideoEntry:
    """A video as it lies on disk: a file, or a folder of frames."""

    parts: tuple[str, ...]
    """Its path from the folder of the videos, without suffix."""
    folder: Path
    images: Mapping[str, str]
    """The frames' files by their names without suffix."""
    file: VideoFile | None = None
    masks: dict[int, Mask] = field(default_factory=dict)
    """The masks that were matched to the frames."""

    @property
    def id(self) -> str:
        return "_".join(self.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a folder of its masks may have."""
        return tuple(map(composed, (self.id, *self.parts)))

    def by_name(self, place: Path) -> "Iterator[VideoEntry]":
        """Divide it into the videos that the names of its images tell apart, below the folder of the videos."""
        if self.file is not None:
            yield self
            return
        images: dict[str, dict[str, str]] = {}
        for stem, file in self.images.items():
            images.setdefault(before_number(stem), {})[stem] = file
        within = self.folder.relative_to(place).parts
        for name, of_name in images.items():
            yield VideoEntry((*within, name) if name else self.parts, self.folder, of_name)

    @property  # not __len__: it would open the file wherever an entry is tested for None
    def length(self) -> int:
        return len(self.images) if self.file is None else len(self.file)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The indices of the frames by the names of their images, composed."""
        return {composed(stem): index for index, stem in enumerate(self.images)}

    def position(self, name: str) -> int | None:
        """The index of the frame that a mask's name, composed, means within this video."""
        if self.file is None:
            return self.positions.get(name)
        number = _FRAME_NUMBER.fullmatch(name)
        return int(number[1]) if number else None

    def frames(self) -> Sequence[Frame]:
        """The frames with the masks that were matched to them."""
        if self.file is not None:
            return FileFrames(self.file, self.masks)
        return FolderFrames(self.folder, self.images.values(), self.masks)


class VideoIndex:
    """All videos, and which of them a name means.

    Names are compared in composed form: an umlaut may be one character in one place and two in another.
    """

    def __init__(
        self,
        place: Path,
        videos: Iterable[VideoEntry],
        json: Iterable[Path] = (),
        beside: Mapping[str, list[Path]] | None = None,
    ) -> None:
        self.place = place
        self.all = list(videos)
        self.beside = beside or {}
        """Images beside a frame that are masks by their names: ending after the frame's name → files."""
        self.only: VideoEntry | None = None
        """The video of all masks, where a pattern of frames names no video."""
        self._json = list(json)
        if not self.all:
            raise UserError(f"{place} holds no videos: expected video files or folders of frames.")
        self._files = [video for video in self.all if video.file is not None]
        self.missing: list[str] = []
        """Names of `dataset.yaml` that no video has."""
        self._whole: dict[str, list[VideoEntry]] = {}
        self._ends: dict[str, list[VideoEntry]] = {}
        self._folders: dict[str, list[VideoEntry]] = {}
        for video in self.all:
            for name in {video.id, "/".join(video.parts)}:
                self._whole.setdefault(composed(name), []).append(video)
            for start in range(1, len(video.parts)):
                self._ends.setdefault(composed("/".join(video.parts[start:])), []).append(video)
            if video.file is None:
                self._folders.setdefault(composed(video.folder.relative_to(place).as_posix()), []).append(video)
        self._names = {name for video in self.all for name in video.names}

    @staticmethod
    def below(place: Path, skip: set[Path], by_name: bool = False) -> "VideoIndex":
        """Find every video file and every folder of images.

        Args:
            place: The folder of the videos, or a video file.
            skip: Folders and files that are no frames.
            by_name: Make several videos of a folder where the names before the numbers of its images differ.
        """
        json: list[Path] = []
        beside: dict[str, list[Path]] = {}
        videos = list(_find_entries(place, skip, json, beside))
        if by_name:
            videos = [part for video in videos for part in video.by_name(place)]
        return VideoIndex(place, videos, json, beside)

    @staticmethod
    def of_pattern(root: Path, pattern: str, files: Mapping[str, str]) -> "VideoIndex":
        """Make videos of the files of a pattern: `VIDEO/FRAME` → path below the root."""
        images: dict[str, dict[str, str]] = {}
        for name, file in files.items():
            video, _, frame = name.rpartition("/")
            images.setdefault(video if "{video}" in pattern else root.resolve().name, {})[frame] = file
        videos = VideoIndex(root, [VideoEntry(tuple(v.split("/")), root, of_video) for v, of_video in images.items()])
        videos.only = None if "{video}" in pattern else videos.all[0]
        return videos

    @cached_property
    def json_beside_frames(self) -> dict[str, Path]:
        """JSON files that lie beside the frame whose name they have, by its path, as LabelMe's do."""
        frames = {(video.folder, stem) for video in self.all for stem in video.images} if self._json else ()
        beside = [path for path in self._json if (path.parent, path.stem) in frames]
        return {f"{path.parent.relative_to(self.place).as_posix()}/{path.stem}": path for path in beside}

    @cached_property
    def json_among_frames(self) -> dict[Path, VideoEntry]:
        """Other JSON files in a folder of frames, as COCO's may be, with its video."""
        of_frames = {*self.json_beside_frames.values()}
        folders = {video.folder: video for video in self.all if video.file is None}
        return {p: folders[p.parent] for p in self._json if p.parent in folders and p not in of_frames}

    def named(self, name: str) -> list[VideoEntry]:
        """The videos that a name or a path may mean; one may be the end of the other."""
        name = composed(name)
        if name in self._whole or name in self._ends:
            return self._whole.get(name) or self._ends[name]
        while "/" in name and name not in self._whole:
            name = name.partition("/")[2]
        return self._whole.get(name, [])

    def find(self, name: str, where: str) -> VideoEntry | None:
        """The video that `dataset.yaml` names; one that is not there is noted in `missing`."""
        videos = self.named(name)
        if not videos:
            near = nearest(name, [video.id for video in self.all])
            self.missing.append(f"{where} names the video {name!r}, which is not there{near}")
            return None
        if len(videos) > 1:
            fitting = " and ".join(video.id for video in videos)
            raise UserError(f"{where} names the video {name!r}, which fits {fitting}: write one of these.")
        return videos[0]

    def match(
        self, masks: Sequence[str], only: VideoEntry | None
    ) -> Iterator[tuple[str, list[tuple[VideoEntry, int]]]]:
        """Yield each mask's name with the frames that it may mean, within one video or among all."""
        names = {mask: composed(mask) for mask in masks}
        if only is not None:
            yield from ((mask, self._frames(name, [only], only)) for mask, name in names.items())
            return
        folders = {name.rpartition("/")[0] for name in names.values()}
        # A mask is of the video that its folder names, or whose frames lie in a folder of the same path.
        named = {folder: self.named(folder) or self._folders.get(folder, []) for folder in folders}
        # If no folder is that of a video, they are of whoever wrote the names: images/, /home/ann/export/.
        foreign = not any(named.values())
        plain = {name.rpartition("/")[2] for name in names.values() if foreign or "/" not in name}
        holding: dict[str, list[VideoEntry]] = {}
        for video in self.all:
            for name in video.positions.keys() & plain:
                holding.setdefault(name, []).append(video)
        for mask, name in names.items():
            folder, _, last = name.rpartition("/")
            anywhere = [*holding.get(last, ()), *self._files]
            if not folder:
                yield mask, self._frames(name, anywhere, None)
                continue
            places = self._frames(name, named[folder], None)
            # Only the folder can tell the video of a bare number, unless it is called like any.
            common = folder.rpartition("/")[2] in COMMON_FOLDERS and len(named) == 1
            if not places and foreign and (common or not _FRAME_NUMBER.fullmatch(last)):
                alone = self._frames(name, anywhere, None)
                places = alone if len(alone) == 1 and not self._contradicts(folder, alone[0][0]) else []
            yield mask, places

    def _contradicts(self, folder: str, video: VideoEntry) -> bool:
        """Test whether a part of a mask's folder is the name of another video."""
        return any(part in self._names and part not in video.names for part in folder.split("/"))

    def _frames(self, name: str, videos: list[VideoEntry], only: VideoEntry | None) -> list[tuple[VideoEntry, int]]:
        last = name.rpartition("/")[2]
        places: dict[VideoEntry, int] = {}
        if extracted := _EXTRACTED.fullmatch(name) if "__frame_" in name else None:
            places = {video: int(extracted[2]) for video in self._extracted(extracted[1]) if only in (None, video)}
        # An image of the mask's own name counts before the number in it: extracted frames may be a dataset themselves.
        places |= {video: index for video in videos if (index := video.position(last)) is not None}
        return [(video, index) for video, index in places.items() if video.file is not None or index < video.length]

    def _extracted(self, name: str) -> list[VideoEntry]:
        """The videos that an extracted frame may come from."""
        uploaded, videos = _UPLOADED.fullmatch(name), self.named(name)
        if videos or not uploaded:
            return videos
        original = unquote(uploaded[1])
        return self.named(original) or [v for v in self.all if _as_uploaded(composed(v.id)) == composed(original)]


def _as_uploaded(name: str) -> str:
    """A name as Label Studio has it after the upload: no blanks, of marks only these."""
    return re.sub(r"[^-\w.]", "", name.replace(" ", "_"))


def is_prediction(folder: Path, files: Iterable[str]) -> bool:
    """Test whether a folder with these files holds predictions, complete or stopped."""
    return RECORD in files or (folder / JOURNAL).exists()


def _find_entries(
    place: Path, skip: set[Path], json: list[Path], beside: dict[str, list[Path]]
) -> Iterator[VideoEntry]:
    """Yield every video file and every folder of images; collect JSON files, and masks beside frames."""
    if place.is_file():
        if suffix_of(place) not in VIDEO_SUFFIXES:
            raise UserError(f"{place} is not a video: expected a folder or {', '.join(sorted(VIDEO_SUFFIXES))}.")
        require_utf8_names(place.parent, [place.name])
        yield VideoEntry((place.stem,), place.parent, {}, VideoFile(place))
        return
    if not place.is_dir():
        raise UserError(f"{place}, the folder of the videos, does not exist.")
    require_no_run(place, "videos or a dataset's folder: the one that it learns from is data.root in its config.yaml")
    parents = {path.parent for path in skip}
    for folder, folders, files in iterate_folders(place):
        if is_prediction(folder, files):
            folders.clear()
            continue
        if folder in parents:
            folders[:] = [name for name in folders if folder / name not in skip]
            files = [name for name in files if folder / name not in skip]
        json += [folder / name for name in files if name.lower().endswith(".json")]
        parts = folder.relative_to(place).parts
        masks = masks_beside(files)
        for ending, names in masks.items():
            beside.setdefault(ending, []).extend(folder / name for name in names)
        passed_over = {name for names in masks.values() for name in names}
        if images := images_of(folder, [name for name in files if name not in passed_over] if masks else files):
            yield VideoEntry(parts or (place.resolve().name,), folder, images)
        videos = [name for name in files if name.lower().endswith(tuple(VIDEO_SUFFIXES))]
        require_utf8_names(folder, videos)
        for name in videos:
            yield VideoEntry((*parts, os.path.splitext(name)[0]), folder, {}, VideoFile(folder / name))
