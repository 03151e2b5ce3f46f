"""Videos as they lie on disk, and which of their frames the name of a mask means."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.schemas import require_no_run
from suture.data.dataset import Frame, Frames, Mask, splits_by_name
from suture.data.dataset_file import nearest
from suture.data.listing import (
    before_number,
    composed,
    images_of,
    iterate_folders,
    last_number,
    masks_beside,
    require_utf8_names,
)
from suture.data.video import VIDEO_SUFFIXES, VideoFile

_EXTRACTED = re.compile(r"(.+)__frame_([0-9]+)")
_UPLOADED = re.compile(r"(?:.*/)?[0-9a-f]{8}-(.+)")
"""Label Studio puts eight digits before the name of a file that is uploaded."""
RECORD = "prediction.json"
"""What a folder of a prediction's results holds when it is done."""
JOURNAL = ".journal.jsonl"
"""What it holds from its first file on until then."""
VIDEO_FOLDERS = ("videos", "frames", "images", "img", "JPEGImages")
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "annot", "SegmentationClass")
COMMON_FOLDERS = frozenset({*VIDEO_FOLDERS, *MASK_FOLDERS})
"""They hold what their name says, of whatever video."""
_NUMBERED = re.compile(r"(?:frame_?)?([0-9]+)")
_NO_VIDEO = re.compile(
    r"[0-9]+[^0-9].*|.*[0-9][ _-]+[0-9]+|.*\.|(?:.*[^a-z])?(?:frame|left|right)(?:[^a-z].*)?", re.IGNORECASE
)
"""What stands before a number that may be no frame's, as 2024-05-01_12-30 before seconds does; or one of two eyes."""
_MINUTE = re.compile(r"(?:.*[ _-])?[0-9]+")
"""What may be one before seconds, but not before a number of three digits: case_3, 101."""
_THREE_DIGITS = re.compile(r".*[0-9]{3}[^0-9]*")


class FileFrames(Frames):
    """The frames of a video file, which is not even opened before its length is needed."""

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
    """A video as found on disk: a file, or a folder of frames."""

    parts: tuple[str, ...]
    """Its path from the folder of the videos, without suffix."""
    folder: Path
    images: Mapping[str, str]
    """The frames' files by their names without suffix."""
    file: VideoFile | None = None
    beside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The masks that lie among the frames: pattern → name of the frame → file."""
    masks: dict[int, Mask] = field(default_factory=dict)
    """Those that were found for the frames."""

    @property
    def id(self) -> str:
        return "_".join(self.parts)

    def by_name(self, within: tuple[str, ...]) -> "Iterator[VideoEntry]":
        """The videos that the names of its images tell apart; `within` are the folders that they lie in."""
        images: dict[str, dict[str, str]] = {}
        for stem, file in self.images.items():
            images.setdefault(before_number(stem), {})[stem] = file
        for name, found in images.items():
            beside = {
                pattern: kept
                for pattern, files in self.beside.items()
                if (kept := {stem: files[stem] for stem in found if stem in files})
            }
            yield VideoEntry((*within, name) if name else self.parts, self.folder, found, beside=beside)

    @property  # not __len__: it would open the file wherever a clip is asked whether it is None
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
        number = _NUMBERED.fullmatch(name)
        return int(number[1]) if number else None

    def frames(self) -> Sequence[Frame]:
        """The frames with the masks that were found."""
        if self.file is not None:
            return FileFrames(self.file, self.masks)
        return FolderFrames(self.folder, self.images.values(), self.masks)


class VideoIndex:
    """All videos, and which of them a name means; an umlaut may be one character in the one and two in the other."""

    def __init__(
        self,
        place: Path,
        found: Iterable[VideoEntry],
        json: list[Path],
        by_name: bool = False,
        masks_inside: Mapping[str, Path] | None = None,
    ) -> None:
        self.place = place
        self.are_by_name = by_name
        self.masks_inside = masks_inside or {}
        """Video → the folder of its masks, which is no video."""
        self.all = list(found)
        self._json = json
        if not self.all:
            raise UserError(f"{place} holds no videos: expected video files or folders of frames.")
        self._files = [clip for clip in self.all if clip.file is not None]
        self.missing: list[str] = []
        """Names of `dataset.yaml` that no video has: where, and which was perhaps meant."""
        self._whole: dict[str, list[VideoEntry]] = {}
        self._ends: dict[str, list[VideoEntry]] = {}
        self._folders: dict[str, list[VideoEntry]] = {}
        for clip in self.all:
            for name in {clip.id, "/".join(clip.parts)}:
                self._whole.setdefault(composed(name), []).append(clip)
            for start in range(1, len(clip.parts)):
                self._ends.setdefault(composed("/".join(clip.parts[start:])), []).append(clip)
            if clip.file is None:
                self._folders.setdefault(composed(clip.folder.relative_to(place).as_posix()), []).append(clip)
        self._words = {word for clip in self.all for word in _words(clip)}

    @staticmethod
    def below(place: Path, skip: set[Path], pattern: str | None = None) -> "VideoIndex":
        """Every video file and every folder of images; `pattern` is that of masks among the frames."""
        json: list[Path] = []
        return VideoIndex(place, list(_find_clips(place, skip, pattern, json)), json)

    def without_masks(self) -> "VideoIndex":
        """The same, but for folders called like those of masks in a folder that has one video else."""
        frames: dict[Path, list[VideoEntry]] = {}
        masks: dict[Path, list[VideoEntry]] = {}
        for clip in self.all:
            if clip.file is None and clip.folder != self.place and clip.folder.name in MASK_FOLDERS:
                masks.setdefault(clip.folder.parent, []).append(clip)
            else:
                for folder in (clip.folder, clip.folder.parent):
                    frames.setdefault(folder, []).append(clip)
        inside = {
            frames[folder][0].id: found[0].folder
            for folder, found in masks.items()
            if len(found) == 1 == len(frames.get(folder, ()))
        }
        folders = {*inside.values()}
        videos = (clip for clip in self.all if clip.folder not in folders)
        return VideoIndex(self.place, videos, self._json, masks_inside=inside) if inside else self

    def by_name(self) -> "VideoIndex":
        """The same with several videos in one folder, where the names before the numbers of its images differ."""
        parts = (
            clip.by_name(clip.folder.relative_to(self.place).parts) if clip.file is None else (clip,)
            for clip in self.all
        )
        found = itertools.chain.from_iterable(parts)
        return VideoIndex(self.place, found, self._json, by_name=True, masks_inside=self.masks_inside)

    def tell_by_name(self, single: bool) -> bool:
        """Whether names seem to tell videos apart in a folder, and do so in every folder where they differ.

        Where in doubt they do not: one operation as several videos may come into train and test. So where every image
        would be a video, something else must say that they may be `single`.
        """
        folders = [Counter(map(before_number, clip.images)) for clip in self.all]
        differing = [(clip, names) for clip, names in zip(self.all, folders, strict=True) if len(names) > 1]
        return bool(differing) and all(_tell_videos(clip, names, single) for clip, names in differing)

    @property
    def are_by_split(self) -> bool:
        """Whether every folder of images is called after a split."""
        folders = {clip.id: clip.parts[-1] for clip in self.all if clip.file is None}
        return bool(folders) and splits_by_name(folders).keys() == folders.keys()

    @property
    def beside(self) -> dict[str, list[Path]]:
        """The masks that lie among the frames of all videos, by their pattern."""
        found: dict[str, list[Path]] = {}
        for clip in self.all:
            for pattern, files in clip.beside.items():
                found.setdefault(pattern, []).extend(clip.folder / name for name in files.values())
        return {pattern: found[pattern] for pattern in sorted(found)}

    @cached_property
    def json_of_frames(self) -> list[Path]:
        """JSON files that are named after a frame each, as LabelMe (x.json) and Supervisely (x.png.json) do."""
        frames = [clip.images for clip in self.all] if self._json else []
        names = {name for images in frames for name in (*images, *images.values())}
        return [path for path in self._json if path.stem in names]

    @cached_property
    def json_beside_frames(self) -> dict[str, Path]:
        """Those of them that lie beside their frame, by its path; Supervisely's are none."""
        frames = {(clip.folder, stem) for clip in self.all for stem in clip.images} if self._json else ()
        beside = [path for path in self._json if (path.parent, path.stem) in frames]
        return {f"{path.parent.relative_to(self.place).as_posix()}/{path.stem}": path for path in beside}

    @cached_property
    def json_among_frames(self) -> dict[Path, VideoEntry]:
        """Other JSON files in a folder of frames, as COCO's may be, with its video."""
        of_frames = set(self.json_of_frames)
        folders = {clip.folder: clip for clip in self.all if clip.file is None}
        return {p: folders[p.parent] for p in self._json if p.parent in folders and p not in of_frames}

    def named(self, name: str) -> list[VideoEntry]:
        """The videos that a name or a path may mean: one may be the end of the other, but they may not differ."""
        name = composed(name)
        if name in self._whole or name in self._ends:
            return self._whole.get(name) or self._ends[name]
        while "/" in name and name not in self._whole:
            name = name.partition("/")[2]
        return self._whole.get(name, [])

    def find(self, name: str, where: str, beside: Iterable[str] = ()) -> VideoEntry | None:
        """The video that `dataset.yaml` names; one that is not there is noted down, so that it hides nothing else.

        What stands `beside` it, where each video has its place once, is not what was meant.
        """
        found = self.named(name)
        if not found:
            taken = {clip.id for other in beside for clip in self.named(other)}
            ids = [clip.id for clip in self.all if clip.id not in taken]
            self.missing.append(f"{where} names the video {name!r}, which is not there{nearest(name, ids)}")
            return None
        if len(found) > 1:
            fitting = " and ".join(clip.id for clip in found)
            raise UserError(f"{where} names the video {name!r}, which fits {fitting}: write one of these.")
        return found[0]

    def frames(
        self, masks: Sequence[str], only: VideoEntry | None
    ) -> Iterator[tuple[str, list[tuple[VideoEntry, int]]]]:
        """Each mask's name with the frames that it may mean, within one video or among all."""
        names = {mask: composed(mask) for mask in masks}
        if only is not None:
            yield from ((mask, self._frames(name, [only], only)) for mask, name in names.items())
            return
        named = {folder: self._of_folder(folder) for folder in {name.rpartition("/")[0] for name in names.values()}}
        # Where no folder is that of a video, they are of whoever wrote the names: images/, /home/ann/export/.
        foreign = not any(named.values())
        parted = (name.rpartition("/") for name in names.values())
        plain = {last for folder, _, last in parted if foreign or not folder}
        holding: dict[str, list[VideoEntry]] = {}
        for clip in self.all:
            for name in clip.positions.keys() & plain:
                holding.setdefault(name, []).append(clip)
        for mask, name in names.items():
            folder, _, last = name.rpartition("/")
            if not folder:
                yield mask, self._frames(name, [*holding.get(last, ()), *self._files], None)
                continue
            found = self._frames(name, named[folder], None)
            # Of whom a bare number is, only the folder can say, unless it is called like any.
            common = folder.rpartition("/")[2] in COMMON_FOLDERS and len(named) == 1
            if not found and foreign and (common or not _NUMBERED.fullmatch(last)):
                alone = self._frames(name, [*holding.get(last, ()), *self._files], None)
                found = alone if len(alone) == 1 and not self._contradicts(folder, alone[0][0]) else []
            yield mask, found

    def is_strange(self, folder: str, clip: VideoEntry) -> bool:
        """Whether a mask's folder says nothing of the video whose frame it found; images/ is no strange one."""
        last = composed(folder).rpartition("/")[2]
        return bool(folder) and not self._of_folder(folder) and last not in COMMON_FOLDERS and last not in _words(clip)

    def _of_folder(self, folder: str) -> list[VideoEntry]:
        """The videos that a mask's folder means: by their names, or since their frames lie in a folder of its path."""
        return self.named(folder) or self._folders.get(composed(folder), [])

    def _contradicts(self, folder: str, clip: VideoEntry) -> bool:
        """Whether a mask's folder speaks of another video."""
        return any(word in self._words and word not in _words(clip) for word in folder.split("/"))

    def _frames(self, name: str, clips: list[VideoEntry], only: VideoEntry | None) -> list[tuple[VideoEntry, int]]:
        last = name.rpartition("/")[2]
        found: dict[VideoEntry, int] = {}
        if extracted := _EXTRACTED.fullmatch(name) if "__frame_" in name else None:
            found = {clip: int(extracted[2]) for clip in self._extracted(extracted[1]) if only in (None, clip)}
        # An image of the mask's own name counts before the number in it: extracted frames may be a dataset themselves.
        found |= {clip: index for clip in clips if (index := clip.position(last)) is not None}
        return [(clip, index) for clip, index in found.items() if clip.file is not None or index < clip.length]

    def _extracted(self, name: str) -> list[VideoEntry]:
        """The videos that an extracted frame may come from."""
        uploaded, found = _UPLOADED.fullmatch(name), self.named(name)
        if found or not uploaded:
            return found
        said = unquote(uploaded[1])
        return self.named(said) or [clip for clip in self.all if _plain(composed(clip.id)) == composed(said)]


def _words(clip: VideoEntry) -> tuple[str, ...]:
    """What a folder of its masks may be called."""
    return tuple(map(composed, (clip.id, *clip.parts)))


def _tell_videos(clip: VideoEntry, names: Counter[str], single: bool) -> bool:
    """Whether these names before the numbers of a folder's images seem to be those of videos."""
    several = sum(count > 1 for count in names.values())
    if (several < max(2, len(names) / 2) and not single) or any(map(_NO_VIDEO.fullmatch, names)):
        return False
    return not any(map(_MINUTE.fullmatch, names)) or any(map(_THREE_DIGITS.fullmatch, clip.images))


def _plain(name: str) -> str:
    """A name as Label Studio has it after the upload: no blanks, of marks only these."""
    return re.sub(r"[^-\w.]", "", name.replace(" ", "_"))


def is_prediction(folder: Path, files: Iterable[str]) -> bool:
    """Whether a folder with these files holds the results of a prediction, done or stopped: no videos of a dataset."""
    return RECORD in files or (folder / JOURNAL).exists()


def _find_clips(place: Path, skip: set[Path], pattern: str | None, json: list[Path]) -> Iterator[VideoEntry]:
    """Every video file and every folder that holds images; JSON files on the way are noted down."""
    if place.is_file():
        if suffix_of(place) not in VIDEO_SUFFIXES:
            raise UserError(
                f"{place} is not a video: expected a folder, or one of {', '.join(sorted(VIDEO_SUFFIXES))}."
            )
        require_utf8_names(place.parent, [place.name])
        yield VideoEntry((place.stem,), place.parent, {}, VideoFile(place))
        return
    if not place.is_dir():
        raise UserError(f"{place}, the folder of the videos, does not exist.")
    require_no_run(place, "videos or a dataset's folder: the one that it learns from is data.root in its config.yaml")
    endings = tuple(VIDEO_SUFFIXES)
    for folder, folders, files in iterate_folders(place):
        if is_prediction(folder, files):
            folders.clear()
            continue
        folders[:] = [name for name in folders if folder / name not in skip]
        json += [folder / name for name in files if name.lower().endswith(".json")]
        parts = folder.relative_to(place).parts
        beside = masks_beside(files, pattern)
        masks = {name for found in beside.values() for name in found.values()}
        if images := images_of(folder, [name for name in files if name not in masks] if masks else files):
            yield VideoEntry(parts or (place.resolve().name,), folder, images, beside=beside)
        films = [name for name in files if name.lower().endswith(endings)]
        require_utf8_names(folder, films)
        for name in films:
            yield VideoEntry((*parts, os.path.splitext(name)[0]), folder, {}, VideoFile(folder / name))
