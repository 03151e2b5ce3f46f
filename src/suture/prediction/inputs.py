"""What a model is let loose on: video files, and folders of images, found by path, folder or glob."""

import contextlib
import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.schemas import require_no_run
from suture.data.dataset import VideosBy
from suture.data.find_view import find_view, view_frames
from suture.data.images import IMAGE_SUFFIXES, MAX_LOW_DEPTH_VALUE, low_depth_divisor, max_16_bit_value, read_image
from suture.data.labelling import frame_name
from suture.data.listing import before_number, images_of, iterate_folders, masks_beside, natural
from suture.data.video import VIDEO_SUFFIXES, DecodedFrame, VideoFile, YuvPlanes
from suture.data.video_index import MASK_FOLDERS, is_prediction
from suture.data.view import View
from suture.data.yuv import YuvToRgb, frame_size
from suture.prediction.overlap import cores, in_order

AS_TRAINED = "as in training"
_SAMPLES, _SAMPLE = 4, 65_536
"""Places in a file, and bytes from each, that tell it from others."""
_CONVERTING = 4
"""Threads that turn a video's frames into RGB: together faster than most decoders."""
_LONGEST_FOLDER = 255
"""Bytes that the name of a folder may have."""
_LONGEST_NAME = 236
"""Bytes: of 255, a file that is being written has a few more than its name."""
_Decoded = tuple[int, DecodedFrame | np.ndarray | None, str]


@dataclass(frozen=True, eq=False)
class Shown:
    """A frame of a clip, or why there is none."""

    index: int
    pixels: np.ndarray | YuvPlanes | None
    """RGB, uint8, H W 3; or what a GPU turns into it."""
    problem: str = ""

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width."""
        if self.pixels is None:
            return None
        return frame_size(self.pixels.shape, planes=self.colours is not None)

    @property
    def colours(self) -> YuvToRgb | None:
        """By what it becomes RGB; None where it is."""
        return self.pixels.colours if isinstance(self.pixels, YuvPlanes) else None


def fill(memory: np.ndarray, frames: Sequence[np.ndarray | YuvPlanes]) -> np.ndarray:
    """Memory for frames of one kind with these frames in it; where there is room for more, the last one is repeated."""
    for number, target in enumerate(memory):
        frame = frames[min(number, len(frames) - 1)]
        if isinstance(frame, YuvPlanes):
            frame.copy_to(target)
        else:
            np.copyto(target, frame)
    return memory


@dataclass(eq=False)
class Clip:
    """Frames in order: those of a video file, or images of one folder."""

    path: Path
    """The video file, the folder, or a single image; the folder and the video's name, where names tell videos apart."""
    images: Sequence[Path] = ()
    """None: they are in the video file."""
    name: str = ""
    """What its results are called; no two clips of one command have the same."""

    @property
    def by_name(self) -> bool:
        """Whether its path is not there on disk, but made of a folder and the name of its images."""
        return len(self.images) > 1 and self.images[0].parent != self.path

    @cached_property
    def file(self) -> VideoFile | None:
        return None if self.images else VideoFile(self.path, threads=cores())

    def __len__(self) -> int:
        return len(self.file) if self.file else len(self.images)

    @cached_property
    def size(self) -> tuple[int, int] | None:
        """Height and width of its frames, or of the first image; None where that cannot be read."""
        return self.file.size[::-1] if self.file else self.read(0).size

    @cached_property
    def nbytes(self) -> int:
        """The size of its files; one that cannot be read, which the reader will say, counts nothing."""
        return sum(os.stat(path).st_size for path in self.images or [self.path] if os.path.exists(path))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What tells it from other inputs: names and sizes of its files, and samples of what they hold.

        Frames in uncompressed files have the same names and sizes in every video; but all of their bytes would be
        hours of video.
        """
        files = self.images or [self.path]
        digest = hashlib.sha256("\0".join(file.name for file in files).encode())
        for file in (files[0], files[len(files) // 2], files[-1]):
            if file.is_file():  # what is none, the reader will say
                with contextlib.suppress(OSError), file.open("rb") as content:
                    for place in range(_SAMPLES):
                        content.seek(file.stat().st_size * place // _SAMPLES)
                        digest.update(content.read(_SAMPLE))
        return {"name": self.path.name, "bytes": self.nbytes, "images": len(self.images), "sample": digest.hexdigest()}

    def frame_name(self, index: int) -> str:
        """What the results of one frame are called; a video's as `suture select` names extracted frames."""
        return self.images[index].stem if self.images else frame_name(self.name, index)

    @cached_property
    def times(self) -> np.ndarray | None:
        """When each frame is shown, in seconds; images do not say it."""
        return self.file.times if self.file else None

    def frames(self, indices: Iterable[int], together: int = 1, planes: bool = False) -> Iterator[Shown]:
        """Frames by rising indices; one that does not decode comes without pixels.

        With `planes` a GPU turns them into RGB, as far as they are of the kind that it takes.
        """
        if self.images:
            return in_order(self.read, indices, cores())
        # One decoder goes forward; what comes out of it is turned into RGB side by side.
        show = _in_planes if planes else _in_rgb
        return in_order(show, map(self._decoded, indices), min(_CONVERTING, cores()), together)

    def read(self, index: int) -> Shown:
        """One frame."""
        return _in_rgb(self._decoded(index))

    def _decoded(self, index: int) -> _Decoded:
        """A frame as it comes out of its file, or why there is none."""
        path = self.images[index] if self.images else self.path
        try:
            return index, self.file.decode(index) if self.file else read_image(path), ""
        except UserError as error:
            # What is written down names files, not their folders, which can name a patient.
            return index, None, str(error).replace(str(path), path.name)

    def refuse_few_bits(self) -> None:
        """Refuse images that are read as black though they show something: a camera's 10 or 12 bits saved as 16."""
        largest = 0
        for place in view_frames(len(self.images)):
            pixels = self.read(place).pixels
            black = isinstance(pixels, np.ndarray) and pixels.max() < MAX_LOW_DEPTH_VALUE >> 8
            top = max_16_bit_value(self.images[place]) if black else None
            if top is None:  # single ones of others may be black indeed
                return
            largest = max(largest, top)
        if divisor := low_depth_divisor(largest):
            raise UserError(
                f"{self.path}: found 16-bit images with no value above {largest}, which are read as black, since 65535 "
                f"is white: save them with 8 bits, their values divided by {divisor}."
            )

    @property
    def unnamable(self) -> str:
        """That no folder of results can have its name, in one sentence; nothing where one can."""
        size = len(os.fsencode(self.name))
        if size <= _LONGEST_FOLDER:
            return ""
        return (
            f"{self.path}: with the folders that tell it from others its name would have {size} bytes, expected "
            f"{_LONGEST_FOLDER} at most: rename them, or predict it by itself."
        )

    def refuse_long_name(self) -> None:
        """Refuse names that file systems take, but not with what the names of masks have more."""
        names = [image.stem for image in self.images] or [self.frame_name(len(self))]
        longest = max(len(os.fsencode(name)) for name in names)
        if longest > _LONGEST_NAME:
            raise UserError(
                f"{self.path}: the names of its masks would have {longest} bytes before the suffix, expected "
                f"{_LONGEST_NAME} at most: rename it."
            )

    def view(self, setting: "ClipView | Literal['auto']") -> "ClipView":
        """The part of the frames that shows the scene: found where the setting is `auto`, or is for another size."""
        if setting != "auto" and setting.size is None:
            return setting
        shown = [self.read(index).pixels for index in view_frames(len(self))]
        frames = [pixels for pixels in shown if isinstance(pixels, np.ndarray)]
        size = frames[0].shape[:2] if frames else None
        if setting != "auto" and (size is None or setting.fits(size)):
            return setting
        found = find_view(frames)
        origin = "found" if found else "no border was found"
        return ClipView(found, size, origin)


def _in_rgb(decoded: _Decoded) -> Shown:
    index, picture, problem = decoded
    return Shown(index, picture.rgb() if isinstance(picture, DecodedFrame) else picture, problem)


def _in_planes(decoded: _Decoded) -> Shown:
    index, picture, problem = decoded
    planes = picture.planes() if isinstance(picture, DecodedFrame) else None
    return Shown(index, planes, problem) if planes else _in_rgb(decoded)


@dataclass(frozen=True)
class ClipView:
    """The view of a clip's frames; None is all of them."""

    view: View | None
    size: tuple[int, ...] | None = None
    """Height and width of the frames it was found in; of others, nothing is known. None: it was stated for all."""
    origin: str = "as stated"

    def fits(self, size: tuple[int, ...]) -> bool:
        """Whether it is for frames of this size."""
        return self.size in (None, size)

    def of(self, size: tuple[int, ...]) -> View | None:
        """The view of frames of one size."""
        return self.view if self.fits(size) else None

    def beyond(self, width: int, height: int) -> str:
        """That a view which was stated for all frames reaches out of those of this size; nothing where it does not."""
        if self.view is None or self.size is not None or self.view.is_within(width, height):
            return ""
        return f"the view {self.view} reaches out of {width}×{height} pixels, expected x,y,w,h that lie within"

    def __str__(self) -> str:
        if self.view is None:
            return f"the whole frame, {self.origin}"
        otherwise = " (--view auto looks for it)" * (self.origin == AS_TRAINED)
        return f"{self.view}{', round' if self.view.circle else ''}, {self.origin}{otherwise}"


def read_training_view(noted: Any, where: str) -> "ClipView | Literal['auto']":
    """What `training_view` noted down; older models say nothing."""
    if noted in (None, "auto"):
        return "auto"
    view = View.parse(noted["view"], where) if noted["view"] else None
    return ClipView(view, tuple(noted["size"]) if noted["size"] else None, AS_TRAINED)


def find_clips(
    inputs: Iterable[str | Path], leave_out: Path | None = None, videos_by: VideosBy = "folder"
) -> list[Clip]:
    """The clips that paths, folders and globs mean, each once, with names of their own; `leave_out` is not entered.

    Images of one folder are one clip, or several by their names, as of a dataset. Below a given folder, masks and
    results of earlier predictions are left out. A clip is named after its file, its folder or its images, and after the
    folders above it as far as that is needed to tell it from another.
    """
    videos: list[Path] = []
    images: dict[Path, list[Path]] = {}
    for given in inputs:
        for path in expanded(str(given)):
            if path.is_dir():
                found = list(_below(path, leave_out))
                if not found:
                    raise UserError(f"{path} holds neither videos nor images: expected {_known()}.")
            else:
                found = [path]
            for file in found:
                if suffix_of(file) in IMAGE_SUFFIXES:
                    images.setdefault(file.parent, []).append(file)
                else:
                    videos.append(file)
    clips = [Clip(path) for path in videos]
    for folder, files in images.items():
        in_folder = sorted({file.name for file in files}, key=natural)
        named: dict[str, list[Path]] = {}
        for stem, name in images_of(folder, in_folder, partial(_one_kind, folder)).items():
            named.setdefault(before_number(stem) if videos_by == "name" else "", []).append(folder / name)
        clips += [Clip(folder / name if len(paths) > 1 else paths[0], paths) for name, paths in named.items()]
    return _named(_each_once(clips))


def _each_once(clips: Iterable[Clip]) -> list[Clip]:
    """The clips without those that were given again."""
    once: dict[str, Clip] = {}
    for clip in clips:
        place = os.path.realpath(clip.path)
        if once.setdefault(place, clip).by_name != clip.by_name:
            raise UserError(
                f"{clip.path} is a folder of images, and images beside it have its name before their numbers, expected "
                "two names: rename the folder, or give --videos-by folder."
            )
        once[place] = clip
    return list(once.values())


def shared_out(clips: Sequence[Clip], rank: int, world: int) -> list[Clip]:
    """This process's part of the clips, the same work for all as far as bytes tell; every process shares out alike."""
    loads = [0] * world
    mine = []
    for clip in sorted(clips, key=lambda clip: (-clip.nbytes, clip.name)) if world > 1 else clips:
        least = loads.index(min(loads))
        loads[least] += clip.nbytes
        if least == rank:
            mine.append(clip)
    return mine


def expanded(given: str) -> list[Path]:
    """The files and folders that a path or a glob means; none is an error, and so is a run."""
    found = [Path(path) for path in ([given] if os.path.lexists(given) else _fitting(given))]
    for path in found:
        require_no_run(path, "videos or images: a model is named once, before them")
    return found


def _fitting(given: str) -> list[str]:
    """What a glob means."""
    if not glob.has_magic(given):
        raise UserError(f"The input {given} does not exist: expected {_known()}, a folder or a glob.")
    found = sorted(glob.glob(os.path.expanduser(given), recursive=True), key=natural)
    if not found:
        raise UserError(f"The input {given} fits no file: check the pattern, and where you are.")
    return found


def _below(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    """The videos and images in a folder and below it; a dataset's masks are no frames."""
    out = leave_out and leave_out.resolve()
    for inside, folders, files in iterate_folders(folder):
        if is_prediction(inside, files):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in MASK_FOLDERS and (inside / name).resolve() != out]
        masks = {mask for of_frame in masks_beside(files).values() for mask in of_frame.values()}
        kinds = VIDEO_SUFFIXES | IMAGE_SUFFIXES
        yield from (inside / name for name in files if name not in masks and suffix_of(name) in kinds)


def _one_kind(folder: Path, suffix: str) -> str:
    return f"whose masks would have the same name: give one kind alone, such as '{folder}/*{suffix}'."


def _named(clips: list[Clip]) -> list[Clip]:
    """Each clip with the shortest end of its path that no other has, `_` between the folders."""
    paths = [Path(os.path.abspath(clip.path)) for clip in clips]
    # A folder has no suffix, whatever follows a point in its name.
    plain = [path if len(clip.images) > 1 else path.with_suffix("") for clip, path in zip(clips, paths, strict=True)]
    # Some file systems do not tell A from a. Of a.mp4 and a.avi side by side, the suffix tells.
    beside = Counter(str(path).casefold() for path in plain)
    parts = []
    for path, short in zip(paths, plain, strict=True):
        alone = beside[str(short).casefold()] == 1
        parts.append([*path.parts[1:-1], short.name if alone else path.name.replace(".", "_")])
    folded = Counter(str(path).casefold() for path in paths)
    by_letters = [folded[str(path).casefold()] for path in paths]
    lengths = [1] * len(clips)
    while True:
        names = ["_".join(some[-length:]) for some, length in zip(parts, lengths, strict=True)]
        exactly, alike = Counter(names), Counter(name.casefold() for name in names)
        longer = [
            place
            for place, (name, same) in enumerate(zip(names, by_letters, strict=True))
            # Paths that only differ in A and a are told apart by these, or not at all.
            if lengths[place] < 64 and (exactly[name] > 1 or alike[name.casefold()] > same)
        ]
        if not longer:
            break
        for place in longer:
            lengths[place] += 1
    for clip, name in zip(clips, names, strict=True):
        clip.name = name
    return clips


def _known() -> str:
    return f"a video ({', '.join(sorted(VIDEO_SUFFIXES))}) or an image ({', '.join(sorted(IMAGE_SUFFIXES))})"
