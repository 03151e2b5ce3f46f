"""Facts about each frame and mask, from one reading of each, for `suture check`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import cv2
import numpy as np

from suture.data.classes import IGNORE, ClassTable, Raw, UnknownValues, pack
from suture.data.dataset import Frame, Mask, Video
from suture.data.images import MaskFile, deinterlace, max_16_bit_value, palette_of, read_image
from suture.data.shots import THUMBNAIL_SIDE, CurvePart, measure_part, small_inside
from suture.data.video import VideoFile
from suture.data.view import View

THUMB_SIZE = 16
SAMPLE_WIDTH = 480
"""Wider video is compared by every n-th pixel: decoding takes most of the time then."""
MAX_BLACK = 24
"""Brightest spot of a black frame's thumbnail, in grey levels."""
MAX_PAINTED_LEVELS = 32
"""Grey levels of a picture that looks painted."""
MIN_FLAT_SHARE = 0.9
"""Share of pixels like the one to their left in a picture that looks painted."""
MAX_UNKNOWN_VALUES = 64
"""Unknown values kept per mask: an anti-aliased mask has thousands."""


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
    masks_only: bool = False
    """The frames are known from an earlier command."""


def inside_view(view: View | None) -> np.ndarray:
    """Mark the pixels of a thumbnail inside a view of frames of any size."""
    return small_inside(view, (view.x + view.width, view.y + view.height) if view else (0, 0))


def make_chunks(video: Video, classes: ClassTable, view: View | None, masks_only: bool) -> Iterator[Chunk]:
    """The usable frames in pieces small enough that a single long video keeps every core busy."""
    for piece in video.pieces():
        indices = [index for index in piece if index in video.masks] if masks_only else piece
        if indices:
            frames = tuple(video.frames[index] for index in indices)
            yield Chunk(video.id, video.file, frames, classes, view, video.deinterlace, masks_only)


def frame_facts(chunk: Chunk) -> tuple[list[FrameFacts], CurvePart]:
    """Read each frame and mask of a chunk once; one that cannot be read is a fact like any other.

    Returns:
        The facts, and the part of the curve of shots.
    """
    of_chunk = [FrameFacts(chunk.video, frame.index) for frame in chunk.frames]

    def thumbnails() -> Iterator[np.ndarray]:
        previous: np.ndarray | None = None
        for facts, frame in zip(of_chunk, chunk.frames, strict=True):
            try:
                thumbnail, previous = _examine(facts, chunk, frame, previous)
            except Exception as error:  # whatever a decoder throws at a damaged file
                facts.error, previous = str(error), None
            else:
                yield thumbnail

    part = CurvePart([], [], [], [])
    if not chunk.masks_only:
        part = measure_part(thumbnails(), inside_view(chunk.view), "blockwise")
    for facts, frame in zip(of_chunk, chunk.frames, strict=True):
        if frame.mask is not None:
            facts.mask = mask_facts(frame.mask, chunk.classes, chunk.view)
    return of_chunk, part


def _examine(
    facts: FrameFacts, chunk: Chunk, frame: Frame, previous: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Read one frame and record its facts; return its thumbnail, and a sample to compare the next frame with."""
    if frame.image is None:
        assert chunk.file is not None
        decoded = chunk.file.decode(frame.index)
        grey = decoded.brightness()
        height, width = grey.shape
        thumbnail = decoded.thumbnail(_scene(chunk.view, width, height), THUMBNAIL_SIDE)
        step = max(1, width // SAMPLE_WIDTH)  # of large video a part of the pixels is enough
        sample = np.ascontiguousarray(grey[::step, ::step])
        top, left = max(0, (height - SAMPLE_WIDTH) // 2), max(0, (width - SAMPLE_WIDTH) // 2)
        facts.combed = is_combed(grey[top : top + SAMPLE_WIDTH, left : left + SAMPLE_WIDTH])
    else:
        pixels = deinterlace(read_image(frame.image)) if chunk.deinterlace else read_image(frame.image)
        height, width = pixels.shape[:2]
        thumbnail = cv2.resize(
            _scene(chunk.view, width, height).crop(pixels), (THUMBNAIL_SIDE,) * 2, interpolation=cv2.INTER_AREA
        )
        sample = np.ascontiguousarray(pixels[..., 1])
        facts.combed = is_combed(sample)
    facts.size = (width, height)
    facts.digest = blake2b(sample.data, digest_size=12).digest()
    grey_thumbnail = cv2.cvtColor(thumbnail, cv2.COLOR_RGB2GRAY)
    facts.thumb = cv2.resize(grey_thumbnail, (THUMB_SIZE, THUMB_SIZE), interpolation=cv2.INTER_AREA)
    facts.painted = painted_levels(sample)
    if facts.black and frame.image is not None:
        facts.largest = max_16_bit_value(frame.image)
    if previous is not None and previous.shape == sample.shape:
        facts.change = cv2.norm(previous, sample, cv2.NORM_L1) / sample.size
    return thumbnail, sample


def _scene(view: View | None, width: int, height: int) -> View:
    """The view; the whole of a frame that is smaller than the others of its video."""
    return view if view and view.is_within(width, height) else View(0, 0, width, height)


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


def facts_to_arrays(facts: Sequence[FrameFacts]) -> dict[str, np.ndarray]:
    """Put the facts about frames, without their masks, into arrays that a cache keeps."""
    no_thumb = np.zeros((THUMB_SIZE, THUMB_SIZE), np.uint8)
    return {
        "index": np.array([one.index for one in facts]),
        "size": np.array([one.size or (0, 0) for one in facts]),
        "error": np.array([one.error for one in facts]),
        "digest": np.array([list(one.digest.ljust(12, b"\0")) for one in facts], np.uint8),
        "thumb": np.array([no_thumb if one.thumb is None else one.thumb for one in facts]),
        "largest": np.array([-1 if one.largest is None else one.largest for one in facts]),
        "change": np.array([np.nan if one.change is None else one.change for one in facts]),
        "painted": np.array([one.painted for one in facts]),
        "combed": np.array([one.combed for one in facts]),
    }


def facts_from_arrays(video: str, arrays: Mapping[str, np.ndarray]) -> list[FrameFacts]:
    """Restore facts from the arrays of `facts_to_arrays`."""
    facts = []
    lists = {name: values.tolist() for name, values in arrays.items() if name not in ("thumb", "digest")}
    for place, (index, (width, height)) in enumerate(zip(lists["index"], lists["size"], strict=True)):
        change, largest = lists["change"][place], lists["largest"][place]
        one = FrameFacts(video, index, error=lists["error"][place])
        if width:
            one.size, one.digest, one.thumb = (width, height), arrays["digest"][place].tobytes(), arrays["thumb"][place]
        one.largest = None if largest < 0 else largest
        one.change = None if np.isnan(change) else change
        one.painted, one.combed = lists["painted"][place], lists["combed"][place]
        facts.append(one)
    return facts


def _encode(raw: np.ndarray, classes: ClassTable, facts: MaskFacts) -> np.ndarray:
    """The mask's class ids; unknown values are recorded and ignored."""
    try:
        return classes.encode(raw)
    except UnknownValues as error:
        facts.add_unknown(error)
        return error.ids
