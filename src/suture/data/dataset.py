"""The dataset model: cases own videos, videos own ordered frames, frames may have masks.

Everything here is an index. Nothing is decoded before it is read, so a hundred thousand frames are listed in seconds.
The known datasets and the user's own folders become a `Dataset` through `suture.data.datasets`.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, overload

import cv2
import numpy as np

from suture.core.errors import UserError
from suture.core.text import number
from suture.data import messages
from suture.data.cache import CachedArrays
from suture.data.classes import IGNORE, ClassTable, UnknownValues
from suture.data.find_view import find_view, view_frames
from suture.data.images import deinterlace, image_size, read_image
from suture.data.video import VideoFile
from suture.data.view import View

FORMAT = 1
"""The format of `dataset.yaml`."""
Split = Literal["train", "val", "test"]
VideosBy = Literal["folder", "name"]
"""Images are of one video by their folder, or also by what stands before the numbers in their names."""
SPLITS: tuple[Split, ...] = ("train", "val", "test")
FILE_PIECE_FRAMES, IMAGE_PIECE_FRAMES = 400, 32
"""Frames that a process reads at once: more of a video file, since each piece begins with a seek."""
_SPLIT_WORD = re.compile(
    r"(?<![^\W\d_])(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?:set)?(?![^\W\d_])", re.IGNORECASE
)
"""A word for a split that no other letter touches; the groups are in the order of `SPLITS`."""


def splits_by_name(names: Mapping[str, str]) -> dict[str, Split]:
    """Read the split from each name; none if all names with one give the same.

    >>> splits_by_name({"a": "train1", "b": "Training_seg", "c": "test_video_41", "d": "trainer"})
    {'a': 'train', 'b': 'train', 'c': 'test'}
    >>> splits_by_name({"a": "test1", "b": "test2", "c": "liver"})
    {}
    """
    matches = {key: _SPLIT_WORD.search(name) for key, name in names.items()}
    splits = {key: SPLITS[match.lastindex - 1] for key, match in matches.items() if match and match.lastindex}
    return splits if len(set(splits.values())) > 1 else {}


def is_split_word(name: str) -> bool:
    """Test whether a name is a split and nothing else: train, Validation; not train1."""
    return _SPLIT_WORD.fullmatch(name) is not None


class WrongMask(UserError):
    """A mask that cannot be used, with its frame; it can be sent from other processes."""

    def __init__(self, sentence: str, video: str, index: int) -> None:
        super().__init__(sentence, video, index)
        self.place = video, index

    def __str__(self) -> str:
        return str(self.args[0])


class Mask(Protocol):
    """The source of a mask's raw values: an image file, a member of a zip, an entry of a COCO file."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def annotated(self) -> tuple[str, ...] | None:
        """The classes that were annotated, or None for all: other pixels are then ignored."""

    def read(self, by_color: bool) -> np.ndarray:
        """Read H W 3 colours if `by_color`, else H W ids (`UNPAINTED` where there is no label)."""

    def examine(self, by_color: bool) -> tuple[np.ndarray, int]:
        """Read the raw values, and count the shapes that later ones of other classes cover wholly."""

    def content(self) -> bytes:
        """The content for a fingerprint."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its place in the video in decoding order, and where its pixels are."""

    index: int
    number: int
    """The recorder's own number: it jumps where frames were left out, so neighbours may be minutes apart."""
    image: Path | None = None
    """An image file; None means the frame at `index` of the video's file."""
    mask: Mask | None = None


class Frames(Sequence[Frame], ABC):
    """Frames that are made on access: of hundreds of thousands only the names are kept."""

    def __init__(self, masks: Mapping[int, Mask]) -> None:
        self.masks = masks

    @abstractmethod
    def make(self, index: int) -> Frame:
        """Make the frame at an index."""

    @property
    def images(self) -> list[str]:
        """The image files, in order; none where all frames are in one file."""
        return []

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        indices = range(len(self))[index]
        return self.make(indices) if isinstance(indices, int) else [self.make(one) for one in indices]

    def __iter__(self) -> Iterator[Frame]:
        return map(self.make, range(len(self)))


@dataclass(eq=False)
class Video:
    """An ordered list of frames of one case."""

    id: str
    case: str
    frames: Sequence[Frame]
    split: Split | None = None
    file: VideoFile | None = None
    view_setting: View | Literal["auto"] | None = None
    excluded: frozenset[int] = frozenset()
    """Indices of frames that no part may use: out of body, no signal."""
    deinterlace: bool = False
    """Frames hold two fields of different moments: one is kept, the other interpolated."""
    take_every: int = 1
    """Every n-th of the other frames takes part, and all that have a mask: long video is too much to store."""

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return f"Video({self.id!r}, case={self.case!r}, {len(self)} frames, split={self.split})"

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the first frame that is not excluded; all others must have the same."""
        if self.file is not None:
            return self.file.size
        first = self.frames[next((index for index in range(len(self)) if index not in self.excluded), 0)].image
        assert first is not None
        return image_size(first)

    def size_of(self, index: int) -> tuple[int, int]:
        """Width and height of one frame; all of a video file have the same."""
        image = self.frames[index].image
        return self.size if image is None else image_size(image)

    @cached_property
    def view(self) -> View:
        """The view as stated, or estimated from a few frames where the setting is `auto`."""
        width, height = self.size
        whole = View(0, 0, width, height)
        if self.view_setting != "auto":
            return self.view_setting.within(width, height, f"video {self.id}") if self.view_setting else whole
        kept = self.measurement("view", None)
        if arrays := kept.load():
            circle: Any = tuple(arrays["circle"].tolist())
            x, y, width, height = arrays["rectangle"].tolist()
            return View(x, y, width, height, circle or None)
        indices = [self.usable[place] for place in view_frames(len(self.usable))]
        if self.file is not None:
            keys = self.file.near_keys(indices)
            indices = indices if self.excluded.intersection(keys) else keys
        view = find_view([self.read(index) for index in indices]) or whole
        rectangle = np.array([view.x, view.y, view.width, view.height])
        kept.save({"rectangle": rectangle, "circle": np.array(view.circle or ())})
        return view

    @property
    def taken(self) -> Sequence[int]:
        """Indices of the frames that `take_every` takes or that have a mask, also excluded ones."""
        if self.take_every == 1:
            return range(len(self))
        return sorted({*range(0, len(self), self.take_every), *self.masks})

    @cached_property
    def usable(self) -> list[int]:
        """Indices of the frames that take part: all that are taken and not excluded."""
        return [index for index in self.taken if index not in self.excluded]

    @property
    def masked(self) -> list[int]:
        """Indices of the frames that take part by their masks alone."""
        return [index for index in self.usable if index % self.take_every]

    def torn(self, indices: Sequence[int]) -> np.ndarray:
        """Test whether other frames lie between each of these usable frames and the next."""
        among, excluded = np.searchsorted(self.usable, indices), np.searchsorted(sorted(self.excluded), indices)
        return (np.diff(among) > 1) | (np.diff(excluded) > 0)

    @cached_property
    def masks(self) -> Mapping[int, Mask]:
        """The masks of the frames that have one."""
        if isinstance(self.frames, Frames):
            return self.frames.masks
        return {frame.index: frame.mask for frame in self.frames if frame.mask is not None}

    @property
    def with_mask(self) -> list[int]:
        """Indices of the usable frames that have a mask."""
        return [index for index in self.usable if index in self.masks]

    @property
    def files(self) -> list[str]:
        """The files that hold the pixels: the video's, or the frames' in order."""
        if self.file is not None:
            return [str(self.file.path)]
        if isinstance(self.frames, Frames):
            return self.frames.images
        return [str(frame.image) for frame in self.frames if frame.image is not None]

    def pieces(self) -> list[Sequence[int]]:
        """Divide the usable frames into pieces that several processes read."""
        if self.file is not None:
            return self.file.pieces(self.usable, FILE_PIECE_FRAMES) if self.usable else []
        starts = range(0, len(self.usable), IMAGE_PIECE_FRAMES)
        return [self.usable[start : start + IMAGE_PIECE_FRAMES] for start in starts]

    def thumbnail(self, index: int, side: int) -> np.ndarray:
        """Shrink the view of a frame to side × side pixels, RGB."""
        if self.file is not None:
            return self.file.decode(index).thumbnail(self.view, side)
        return cv2.resize(self.view.crop(self.read(index)), (side, side), interpolation=cv2.INTER_AREA)

    def measurement(self, kind: str, view: View | None) -> CachedArrays:
        """Arrays of this kind that were measured on a view of the usable frames; all commands share them.

        Args:
            kind: Name of the measurement.
            view: None is the whole frame.
        """
        frames = sha256(np.array(self.usable).tobytes()).hexdigest()
        files = self.files
        if self.file is None:  # excluded frames may be missing
            files = [files[index] for index in self.usable]
        return CachedArrays(files, f"{kind} {frames} {view and view.to_json()} {self.deinterlace}")

    def read(self, index: int) -> np.ndarray:
        """The frame's pixels: RGB, uint8, H W 3, at native resolution."""
        image = self.frames[index].image
        if image is not None:
            return deinterlace(read_image(image)) if self.deinterlace else read_image(image)
        assert self.file is not None
        return self.file.read(index)


class Boxes(NamedTuple):
    """Annotations of one export that have no shape, as those for detectors: they are left out."""

    file: str
    boxes: int
    shapes: int
    """The annotations that have one."""

    def __str__(self) -> str:
        shapes = number(self.shapes, "shape") if self.shapes else "no shapes"
        return f"{self.file}: it has {number(self.boxes, 'box or line', 'boxes or lines')}, {shapes}"


class MaskedFrames(Sequence[tuple[np.ndarray, np.ndarray]]):
    """Frames (H, W, 3), RGB, with their masks of class ids (H, W), both uint8; read on access.

    >>> loader = torch.utils.data.DataLoader(dataset.pairs("train"), batch_size=None)  # doctest: +SKIP
    """

    def __init__(self, dataset: "Dataset", videos: Iterable[Video]) -> None:
        self.dataset = dataset
        self.places = [(video, index) for video in videos for index in video.with_mask]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[override]
        video, index = self.places[place]
        return video.read(index), self.dataset.read_mask(video, index)


@dataclass(eq=False)
class Dataset:
    """Videos of cases, one class table, and which videos are for training, validation and test."""

    name: str
    root: Path
    classes: ClassTable
    videos: list[Video]
    protocol: str = "default"
    videos_by: VideosBy = "folder"
    """The rule that makes videos of images; a model stores it, for new ones."""
    divides_cases: bool = False
    """True if the source's own protocol puts one case into two splits, as vocalfolds' `sequences` does."""
    notes: list[str] = field(default_factory=list)
    """Notes of the source, for the user to read."""
    unread_masks: list[str] = field(default_factory=list)
    """Images beside frames, and folders in or beside a video's, that are masks by their names but are not read."""
    unmatched_masks: list[str] = field(default_factory=list)
    """Masks whose names fit no frame."""
    doubtful_masks: list[str] = field(default_factory=list)
    """Masks that are left out since they fit several frames, or one that has a mask; each with these."""
    late_masks: Mapping[str, str] = field(default_factory=dict)
    """Videos whose masks are partly numbered past the end, probably at another frame rate; each with the numbers."""
    boxes: list[Boxes] = field(default_factory=list)
    """Files with annotations that are left out because they have no shape."""
    missing_videos: list[str] = field(default_factory=list)
    """Places of `dataset.yaml` that name a video or a case that is not there."""
    listed: Mapping[str, Counter[Split]] = field(default_factory=dict)
    """Video → how many lines of the lists beside the data put it, or a frame of it, into each split."""

    def __post_init__(self) -> None:
        if not self.videos:
            raise UserError(f"{self.root} holds no videos: expected video files or folders of frames.")
        twice = [name for name, count in Counter(video.id for video in self.videos).items() if count > 1]
        if twice:
            raise UserError(f"{self.root}: the video names {', '.join(twice[:5])} occur twice; rename one of each.")

    def __repr__(self) -> str:
        masks = sum(len(video.with_mask) for video in self.videos)
        return f"Dataset({self.name!r}, {len(self.videos)} videos, {masks} masks, {len(self.classes)} classes)"

    def __getitem__(self, video: str) -> Video:
        return self._by_id[video]

    def __iter__(self) -> Iterator[Video]:
        return iter(self.videos)

    @cached_property
    def _by_id(self) -> dict[str, Video]:
        return {video.id: video for video in self.videos}

    @property
    def cases(self) -> dict[str, list[Video]]:
        """The videos of each case, in order."""
        cases: dict[str, list[Video]] = {}
        for video in self.videos:
            cases.setdefault(video.case, []).append(video)
        return cases

    def split(self, name: Split) -> list[Video]:
        """The videos of one split."""
        return [video for video in self.videos if video.split == name]

    @property
    def divided_cases(self) -> list[str]:
        """Cases whose videos lie in more than one split."""
        return [case for case, videos in self.cases.items() if len({v.split for v in videos if v.split}) > 1]

    def require_whole_cases(self) -> None:
        """Raise if a case lies in two splits, unless the source's protocol does so knowingly."""
        if self.divided_cases and not self.divides_cases:
            case = self.divided_cases[0]
            splits = ", ".join(f"{video.id} in {video.split}" for video in self.cases[case])
            raise UserError(f"{self.root}: case {case} lies in two splits ({splits}): put all its videos into one.")

    def require_videos(self) -> None:
        """Raise if `dataset.yaml` names a video that is not there."""
        for place in self.missing_videos:
            raise UserError(f"{place}: {messages.MISSING}.")

    def require_clear_masks(self) -> None:
        """Raise if the frame of a mask is in doubt, or an export has boxes only."""
        for mask in self.doubtful_masks:
            raise UserError(f"The mask {mask}: {messages.DOUBTFUL}.")
        for video, numbers in self.late_masks.items():
            if self[video].split is not None:
                raise UserError(f"{self.root}: {numbers}: {messages.NUMBERS}.")
        for boxes in self.boxes:
            if not boxes.shapes:
                raise UserError(f"{boxes}; {messages.BOXES}.")

    def pairs(self, split: Split | None = None) -> "MaskedFrames":
        """Frames with masks, of one split or all: a sequence of (frame, mask) that PyTorch's loaders take too."""
        return MaskedFrames(self, self.split(split) if split else self.videos)

    def read_mask(self, video: Video, index: int) -> np.ndarray:
        """Read a mask as class ids (uint8, H W); `IGNORE` outside the view or if not annotated."""
        mask = video.masks.get(index)
        if mask is None:
            raise UserError(f"Frame {index} of video {video.id} has no mask.")
        try:
            ids = self.classes.encode(mask.read(self.classes.by_color))
        except UnknownValues as error:
            fix = messages.UNPAINTED if error.unpainted else messages.UNKNOWN
            raise WrongMask(f"{mask.name} {error}: {fix}.", video.id, index) from error
        except UserError as error:
            raise WrongMask(str(error), video.id, index) from error
        size = ids.shape[1], ids.shape[0]
        if size != video.size and size != (frame := video.size_of(index)):
            raise WrongMask(f"{mask.name} is {messages.on_frame(size, frame)}: {messages.SIZE}.", video.id, index)
        ids = self.classes.only_annotated(ids, mask.annotated)
        view = video.view
        if (view.width, view.height) != size or view.circle:
            ids = np.where(view.mask(*size), ids, IGNORE).astype(np.uint8)
        return ids


def training_view(videos: Sequence[Video]) -> Any:
    """The view that a model stores for new videos: that of all training videos, or `auto`.

    >>> training_view([Video("a", "a", [], view_setting="auto")])
    'auto'
    """
    settings = {video.view_setting for video in videos}
    sizes = {video.size for video in videos} if settings - {"auto"} else set()
    if settings == {None}:
        return {"view": None, "size": None}
    if len(settings) > 1 or len(sizes) != 1:
        return "auto"
    ((setting,), ((width, height),)) = settings, sizes
    assert isinstance(setting, View)
    return {"view": setting.to_json(), "size": [height, width]}
