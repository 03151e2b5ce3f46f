"""Facts about each frame and mask, from one reading of each, for `suture check`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import cv2
import numpy as np

from suture.data.classes import IGNORE, ClassTable, Raw, UnknownValues, pack
from suture.data.dataset import Frame, Mask, Video
from suture.data.images import MaskFile, deinterlace, max_16_bit_value, palette_of, read_image
from suture.data.video import VideoFile
from suture.data.view import View

THUMB_SIZE = 64
"""The size at which `suture.data.shots` looks at frames."""
MAX_BLACK = 24
"""Brightest spot of a black frame's thumbnail, in grey levels."""
MAX_PAINTED_LEVELS = 32
"""Grey levels of a picture that looks painted."""
MIN_FLAT_SHARE = 0.9
"""Share of pixels like the one to their left in a picture that looks painted."""
MAX_UNKNOWN_VALUES = 64
"""Unknown values kept per mask: an anti-aliased mask has thousands."""
_CHUNK_IMAGES = 32
_CHUNK_FRAMES = 512
"""Frames of a video file per piece of work: more than images, since each piece begins with a seek."""


@dataclass(slots=True)
class MaskFacts:
    """One mask at native size."""

    name: str
    size: tuple[int, int] | None = None
    """Width and height, where it could be read."""
    error: str = ""
    """The reason, if it does not decode."""
    pixels: np.ndarray | None = None
    """Pixels per class inside the view, and last those that are ignored."""
    outside: np.ndarray | None = None
    """Pixels per class outside the view, which are among the ignored."""
    unknown: dict[Raw, int] = field(default_factory=dict)
    """Pixels per value that the class table does not know, the most frequent ones."""
    unstated: int = 0
    """Unpainted pixels, where the class table does not say what they mean."""
    has_zero: bool = False
    colored: bool = False
    """True for a colour image although the class table has ids."""
    between: float = 0.0
    """Share of the pixels at edges whose value lies between its neighbours': resizing makes such, people do not."""
    predicted: bool = False
    """True for a mask of `suture predict`, whose values are the numbers of the classes, if the table has other ones."""
    covered: int = 0
    """Shapes of an export that later ones cover, so that nothing of them is left."""

    def add_unknown(self, error: UnknownValues) -> None:
        """Record the values that the class table does not know, the most frequent first."""
        self.unstated = error.unpainted
        self.unknown = dict(list(error.painted.items())[:MAX_UNKNOWN_VALUES])


@dataclass(slots=True)
class FrameFacts:
    """One frame, and its mask where it has one."""

    video: str
    index: int
    size: tuple[int, int] | None = None
    """Width and height; None: it does not decode."""
    error: str = ""
    digest: bytes = b""
    """Equal for frames whose pixels are equal."""
    thumb: np.ndarray | None = None
    """The scene: grey, THUMB_SIZE × THUMB_SIZE, uint8."""
    largest: int | None = None
    """Largest value of an image of 16 bits that is black when it is read."""
    change: float | None = None
    """Mean absolute difference to the frame before, in grey levels; None where that was not at hand."""
    painted: int = 0
    """Number of grey levels of a picture made of flat areas, as a mask is; 0 for a picture of the world."""
    combed: bool = False
    """True where neighbouring lines come from different moments: two fields woven into one frame."""
    mask: MaskFacts | None = None

    @property
    def black(self) -> bool:
        return self.thumb is not None and int(self.thumb.max()) < MAX_BLACK


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of work: some frames of one video, in order."""

    video: str
    file: VideoFile | None
    frames: tuple[Frame, ...]
    classes: ClassTable
    view: View | None
    deinterlace: bool = False

    def read(self, frame: Frame) -> np.ndarray:
        """Read the pixels of a frame."""
        if frame.image is not None:
            return deinterlace(read_image(frame.image)) if self.deinterlace else read_image(frame.image)
        assert self.file is not None
        return self.file.read(frame.index)


def make_chunks(video: Video, indices: Sequence[int], classes: ClassTable, view: View | None) -> Iterator[Chunk]:
    """The frames at `indices` in pieces small enough that a single long video keeps every core busy."""
    length = _CHUNK_FRAMES if video.file else _CHUNK_IMAGES
    for start in range(0, len(indices), length):
        frames = tuple(video.frames[index] for index in indices[start : start + length])
        yield Chunk(video.id, video.file, frames, classes, view, video.deinterlace)


def frame_facts(chunk: Chunk) -> list[FrameFacts]:
    """Read each frame and mask of a chunk once; one that cannot be read is a fact like any other."""
    of_chunk: list[FrameFacts] = []
    previous: np.ndarray | None = None
    for frame in chunk.frames:
        facts = FrameFacts(chunk.video, frame.index)
        of_chunk.append(facts)
        try:
            pixels = chunk.read(frame)
        except Exception as error:  # whatever a decoder throws at a damaged file
            facts.error = str(error)
            previous = None
        else:
            grey = np.ascontiguousarray(pixels[..., 1])
            facts.size = (grey.shape[1], grey.shape[0])
            facts.digest = blake2b(grey.data, digest_size=12).digest()
            facts.thumb = _thumb(pixels, chunk.view)
            facts.painted = painted_levels(grey)
            facts.combed = is_combed(grey)
            if facts.black and frame.image is not None:
                facts.largest = max_16_bit_value(frame.image)
            if previous is not None and previous.shape == grey.shape:
                facts.change = cv2.norm(previous, grey, cv2.NORM_L1) / grey.size
            previous = grey
        if frame.mask is not None:
            facts.mask = mask_facts(frame.mask, chunk.classes, chunk.view)
    return of_chunk


def mask_facts(mask: Mask, classes: ClassTable, view: View | None) -> MaskFacts:
    """Read one mask and count its values."""
    facts = MaskFacts(mask.name)
    try:
        raw, facts.covered = mask.examine(classes.by_color)
    except UnknownValues as error:  # readers of annotation tools' exports know their labels themselves
        facts.add_unknown(error)
        return facts
    except Exception as error:  # whatever a decoder throws at a damaged file
        colors = None if classes.by_color else _read_colors(mask)
        if colors is None:
            facts.error = str(error)
            return facts
        raw, facts.colored = colors, True
    facts.size = (raw.shape[1], raw.shape[0])
    facts.has_zero = bool((raw == 0).any()) if raw.ndim == 2 else not raw.any(axis=2).all()
    facts.between = between_share(raw)
    if facts.colored:
        return facts
    if isinstance(mask, MaskFile) and not classes.is_numbered:
        facts.predicted = palette_of(mask.path) == classes.palette.tobytes()
    ids = classes.only_annotated(_encode(raw, classes, facts), mask.annotated)
    if view is not None:
        inside = view.mask(*facts.size)
        facts.outside = np.bincount(ids[~inside], minlength=256)[: len(classes)]
        ids = np.where(inside, ids, IGNORE)
    counts = np.bincount(ids.ravel(), minlength=256)
    facts.pixels = np.append(counts[: len(classes)], counts[IGNORE])
    return facts


def between_share(raw: np.ndarray) -> float:
    """Share of the pixels between two different neighbours whose own value lies between theirs.

    >>> between_share(np.repeat([[0, 0, 4, 4]], 32, axis=0)), between_share(np.repeat([[0, 2, 4]], 32, axis=0))
    (0.0, 1.0)
    """
    packed = pack(raw) if raw.ndim == 3 else raw
    edges = between = 0
    channels = raw.reshape(*packed.shape, -1)
    for values, ids in ((channels, packed), (channels.swapaxes(0, 1), packed.T)):
        ids = np.ascontiguousarray(ids)
        before, here, after = ids[:-2], ids[1:-1], ids[2:]
        differs = before != after
        edges += int(np.count_nonzero(differs))
        place = np.flatnonzero(differs & (here != before) & (here != after))
        row, column = np.divmod(place, ids.shape[1])
        first, own, last = (values[row + step, column] for step in range(3))
        inside = (np.minimum(first, last) <= own) & (own <= np.maximum(first, last))
        between += int(inside.all(axis=1).sum())
    return between / edges if edges else 0.0


def painted_levels(grey: np.ndarray) -> int:
    """The number of grey levels of a picture made of a few, in flat areas; 0 of any other."""
    levels = int(np.count_nonzero(cv2.calcHist([grey], [0], None, [256], [0, 256])))
    if levels > MAX_PAINTED_LEVELS:
        return 0
    return levels if np.mean(grey[:, 1:] == grey[:, :-1]) >= MIN_FLAT_SHARE else 0


def is_combed(grey: np.ndarray, block: int = 16) -> bool:
    """Test whether a frame holds two fields of different moments.

    Where something moves, a line then resembles the line after the next more than the next: in no other picture
    do neighbours differ more than pixels two apart, except in a pattern of single pixels, which also does it sideways.
    """
    size = ((grey.shape[1] - 2) // block, (grey.shape[0] - 2) // block)
    if min(size) < 1:
        return False

    def blocks(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        difference = cv2.absdiff(first, second)[: size[1] * block, : size[0] * block]
        return cv2.resize(difference, size, interpolation=cv2.INTER_AREA).astype(np.float32)

    lines = blocks(grey[1:], grey[:-1]), blocks(grey[2:], grey[:-2])
    columns = blocks(grey[:, 1:], grey[:, :-1]), blocks(grey[:, 2:], grey[:, :-2])
    combed = (lines[0] > 6) & (lines[0] > 1.25 * lines[1]) & ~(columns[0] > 1.25 * columns[1])
    # One or two blocks, which are over 1 % of a small frame, may be a tube's ridges.
    return bool(combed.sum() > 2 and combed.mean() > 0.01)


def find_video_view(video: Video) -> View | None:
    """The view; None where it is the whole frame or the frames do not decode."""
    try:
        return video.view if video.view != View(0, 0, *video.size) else None
    except Exception:  # whatever a decoder throws at a damaged file
        return None


def _read_colors(mask: Mask) -> np.ndarray | None:
    """A mask that does not hold ids, as colours; None if it is no image at all."""
    try:
        return mask.read(True)
    except Exception:
        return None


def _thumb(pixels: np.ndarray, view: View | None) -> np.ndarray:
    scene = view.crop(pixels) if view else pixels
    if not scene.size:  # a frame that is smaller than the others of its video
        scene = pixels
    return cv2.cvtColor(cv2.resize(scene, (THUMB_SIZE, THUMB_SIZE), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)


def _encode(raw: np.ndarray, classes: ClassTable, facts: MaskFacts) -> np.ndarray:
    """The mask's class ids; unknown values are recorded and ignored."""
    try:
        return classes.encode(raw)
    except UnknownValues as error:
        facts.add_unknown(error)
        return error.ids
