"""Shots: parts of a video from one camera position, separated by sharp changes of the intensity histograms.

The default detector, `blockwise`, works on a small copy of each frame whose brightness and contrast are normalised per
channel, so that lamps and smoke change little. It compares the histograms of a grid of blocks. The distance of two
frames is the mean over the blocks, each limited: an instrument or blood changes some blocks, a cut changes all of them.
A cut is a distance that lasts and that stands out from its neighbourhood in time, so the same settings serve videos of
1 and of 25 frames per second.

The detector `histogram` is the one that the paper describes: the distance of the intensity histograms of consecutive
frames against a fixed threshold.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import cv2
import numpy as np
from pydantic import Field

from suture.core.io import write_bytes
from suture.core.settings import Settings
from suture.core.workers import cores, given, pool_for
from suture.data.cache import CachedArrays
from suture.data.dataset import Video
from suture.data.view import View

if TYPE_CHECKING:
    from suture.data.store import FrameStore

_BLOCKS = 8
_BLOCK_SIDE = 8
THUMBNAIL_SIDE = _BLOCKS * _BLOCK_SIDE
"""Side (pixels) at which frames are compared."""
_BINS = 16
_MAX_DEVIATION = 2.0
"""Range of the normalised histograms, in standard deviations to either side."""
_MAX_BLOCK_DISTANCE = 0.2
_BLOCK_OF = np.add.outer(
    np.arange(THUMBNAIL_SIDE) // _BLOCK_SIDE * _BLOCKS, np.arange(THUMBNAIL_SIDE) // _BLOCK_SIDE
).ravel()
_MIN_PARALLEL_FRAMES = 2048
"""Fewer frames are measured faster in one process."""


class ShotSettings(Settings):
    """Shot detector: its method, and the distance of two frames that is a cut."""

    method: Literal["blockwise", "histogram"] = "blockwise"
    """`histogram` is the paper's detector: intensity histograms of consecutive frames against `threshold`."""
    threshold: float = Field(0.25, ge=0, le=1)
    """Histogram: distances above it, 0 to 1, are cuts."""
    floor: float = Field(0.112, ge=0)
    """Blockwise: a smaller distance, of 0 to 0.2, is never a cut."""
    spread: float = Field(2.5, ge=0)
    """Blockwise: cuts are this many spreads above the local median."""
    window: int = Field(16, ge=2)
    """Blockwise: transitions on each side for the local median."""
    longest_gap: float = Field(100, gt=1)
    """Frames whose numbers lie further apart, in typical steps, are never one shot."""


@dataclass(frozen=True, eq=False)
class Shots:
    """The shots of a video. `curve` and `threshold` have one value per transition between usable frames."""

    starts: tuple[int, ...]
    """Index of the first frame of each shot."""
    frames: tuple[int, ...]
    """Indices of the usable frames; the others belong to no shot."""
    curve: np.ndarray
    threshold: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, index: int) -> int:
        """Return the number of the shot of a usable frame."""
        place = bisect_left(self.frames, index)
        if place == len(self.frames) or self.frames[place] != index:
            raise KeyError(f"frame {index} is excluded or beyond the end: it belongs to no shot")
        return bisect_right(self.starts, index) - 1

    def members(self, shot: int) -> tuple[int, ...]:
        """Return the indices of the frames of one shot."""
        first = bisect_left(self.frames, self.starts[shot])
        last = bisect_left(self.frames, self.starts[shot + 1]) if shot + 1 < len(self) else len(self.frames)
        return self.frames[first:last]


def find_shots(
    video: Video, settings: ShotSettings | None = None, progress: Callable[[int], None] = lambda frames: None
) -> Shots:
    """Find the shots of a video, as `shots_of_videos` does."""
    return shots_of_videos([video], settings, progress)[video.id]


def shots_of_videos(
    videos: Sequence[Video],
    settings: ShotSettings | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> dict[str, Shots]:
    """Find the shots of videos; every usable frame is read once, on all cores, and its curve is kept.

    Args:
        videos: Their excluded frames separate shots.
        settings: The detector; block-wise by default.
        progress: Called with the number of frames done.
    """
    settings = settings or ShotSettings()
    kept = {video.id: _measurement(video, settings.method) for video in videos if video.usable}
    curves = {video.id: np.zeros(0) for video in videos}
    missing = []
    for video in videos:
        if video.id in kept and (arrays := kept[video.id].load()):
            curves[video.id] = arrays["curve"]
            progress(len(video.usable))
        elif video.usable:
            missing.append(video)
    tasks = [(place, piece) for place, video in enumerate(missing) for piece in video.pieces()]
    parts: list[list[CurvePart]] = [[] for _ in missing]
    with ExitStack() as stack:
        results: Iterator[CurvePart] = map(partial(_measure_piece, missing, settings.method), tasks)
        if len(tasks) > 1 and sum(len(piece) for _, piece in tasks) >= _MIN_PARALLEL_FRAMES:
            pool = pool_for("looking for shots", min(cores(), len(tasks)), missing, settings.method)
            results = stack.enter_context(pool).map(_measure_given, tasks)
        for (place, piece), part in zip(tasks, results, strict=True):
            parts[place].append(part)
            progress(len(piece))
    for video, of_video in zip(missing, parts, strict=True):
        curves[video.id] = join_parts(of_video, small_inside(video.view, video.size), settings.method)
        kept[video.id].save({"curve": curves[video.id]})
    return {video.id: shots_of_curve(video, curves[video.id], settings) for video in videos}


def _measurement(video: Video, method: str) -> CachedArrays:
    view = video.view
    return video.measurement(f"shots {method}", None if view == View(0, 0, *video.size) else view)


def _measure_given(task: tuple[int, Sequence[int]]) -> "CurvePart":
    videos, method = given()
    return _measure_piece(videos, method, task)


def _measure_piece(videos: Sequence[Video], method: str, task: tuple[int, Sequence[int]]) -> "CurvePart":
    video, indices = videos[task[0]], task[1]
    thumbnails = (video.thumbnail(index, THUMBNAIL_SIDE) for index in indices)
    return measure_part(thumbnails, small_inside(video.view, video.size), method)


def shots_of_frames(
    frames: Iterable[np.ndarray],
    numbers: Sequence[int],
    indices: Sequence[int] | None = None,
    inside: np.ndarray | None = None,
    settings: ShotSettings | None = None,
    torn: np.ndarray | None = None,
) -> Shots:
    """Find the shots of a sequence of RGB frames.

    Args:
        frames: H W 3, uint8.
        numbers: The recorder's frame numbers.
        indices: Places of the frames in their video, by default 0, 1, 2, …
        inside: The pixels that count, H W; by default all.
        settings: The detector; block-wise by default.
        torn: The transitions at which a shot ends in any case; by default those where the indices jump.

    >>> dark, light = np.zeros((2, 64, 64, 3), np.uint8)
    >>> light[:32, :, 1] = 200; dark[:, 32:, 2] = 200
    >>> shots_of_frames([dark] * 5 + [light] * 5, range(10)).starts
    (0, 5)
    """
    settings = settings or ShotSettings()
    places = range(len(numbers)) if indices is None else indices
    torn = np.diff(np.asarray(places, dtype=int)) > 1 if torn is None else torn
    return _shots(_curve(frames, inside, settings.method), numbers, places, torn, settings)


def stored_shots(
    videos: Sequence[Video],
    store: "FrameStore",
    settings: ShotSettings | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda frames: None,
) -> dict[str, Shots]:
    """Find the shots of videos whose usable frames are stored.

    The curves are kept beside the frames, by method, and shared by all runs.

    Args:
        videos: Videos of the store.
        store: Holds all their usable frames.
        settings: The detector; block-wise by default.
        workers: Number of processes, by default one per core.
        progress: Called with the number of frames done.
    """
    settings = settings or ShotSettings()
    paths = {video.id: store.derived_path(video.id, f"shots-{settings.method}") for video in videos}
    curves = {}
    for video in videos:
        with suppress(OSError, ValueError, EOFError):
            curve = np.load(paths[video.id])
            if curve.shape == (len(video.usable) - 1,):
                curves[video.id] = curve
                progress(len(video.usable))
    missing = [video for video in videos if video.id not in curves]
    tasks = [(video.id, video.usable) for video in missing]
    with ExitStack() as stack:
        run: Callable[..., Iterator[np.ndarray]] = map
        if len(missing) > 1 and sum(len(usable) for _, usable in tasks) >= _MIN_PARALLEL_FRAMES:
            processes = min(workers or cores(), len(missing))
            run = stack.enter_context(pool_for("looking for shots", processes)).map
        measured = run(partial(_stored_curve, store, settings.method), tasks)
        for video, curve in zip(missing, measured, strict=True):
            curves[video.id] = curve
            content = BytesIO()
            np.save(content, curve)
            with suppress(OSError):  # the folder cannot be written: measure again next time
                write_bytes(paths[video.id], content.getbuffer())
            progress(len(video.usable))
    return {video.id: shots_of_curve(video, curves[video.id], settings) for video in videos}


def _stored_curve(store: "FrameStore", method: str, task: tuple[str, list[int]]) -> np.ndarray:
    video, indices = task
    return _curve((store.frame(video, index) for index in indices), store.inside(video), method)


def shots_of_curve(
    video: Video, curve: np.ndarray, settings: ShotSettings | None = None, indices: Sequence[int] | None = None
) -> Shots:
    """Find the shots of a video whose curve is known, of all its usable frames or of those at `indices`."""
    indices = video.usable if indices is None else indices
    numbers = [video.frames[index].number for index in indices]
    return _shots(curve, numbers, indices, video.torn(indices), settings or ShotSettings())


def _shots(
    curve: np.ndarray, numbers: Sequence[int], indices: Sequence[int], torn: np.ndarray, settings: ShotSettings
) -> Shots:
    """Decide which transitions are cuts."""
    places = np.asarray(indices, dtype=int)
    if len(places) == 0:
        return Shots((), (), curve, curve)
    threshold = _threshold(curve, settings)
    steps = np.diff(np.asarray(numbers, dtype=np.float64))
    # Small gaps in the numbers are judged by content, as the camera may stand still. Over large ones (minutes, in
    # CaDIS), and where a recorder starts to count anew, similar histograms prove nothing.
    typical = max(1.0, float(np.median(steps))) if len(steps) else 1.0
    cuts = (curve > threshold) | (steps <= 0) | (steps > settings.longest_gap * typical) | torn
    starts = places[np.flatnonzero(np.concatenate([[True], cuts]))]
    return Shots(tuple(starts.tolist()), tuple(places.tolist()), curve, threshold)


class _Detector(Protocol):
    def __init__(self, inside: np.ndarray) -> None: ...

    def describe(self, small: np.ndarray) -> np.ndarray: ...

    def distance(self, one: np.ndarray, other: np.ndarray) -> float: ...


class _Blockwise:
    """Cumulated histograms of each block and channel: their differences grow with how far the intensities move."""

    def __init__(self, inside: np.ndarray) -> None:
        self.inside = inside
        self.block_of = _BLOCK_OF[inside.ravel(), None]
        self.counted = np.bincount(self.block_of.ravel(), minlength=_BLOCKS**2) >= _BLOCK_SIDE**2 / 2

    def describe(self, small: np.ndarray) -> np.ndarray:
        values = small[self.inside].astype(np.float32)
        if values.size == 0:
            return np.zeros((_BLOCKS**2, 3, _BINS - 1), np.float32)
        normal = (values - values.mean(axis=0)) / (values.std(axis=0) + 4)  # so that noise in a black frame stays noise
        scale = _BINS / (2 * _MAX_DEVIATION)
        bins = np.clip((normal + _MAX_DEVIATION) * scale, 0, _BINS - 1).astype(np.intp)
        cells = (self.block_of * 3 + np.arange(3)) * _BINS + bins
        counts = np.bincount(cells.ravel(), minlength=_BLOCKS**2 * 3 * _BINS).reshape(-1, 3, _BINS)
        cumulated = counts.cumsum(axis=2, dtype=np.float32)
        return cumulated[..., :-1] / np.maximum(cumulated[..., -1:], 1)

    def distance(self, one: np.ndarray, other: np.ndarray) -> float:
        blocks = np.abs(one - other)[self.counted].mean(axis=(1, 2))
        return float(np.minimum(blocks, _MAX_BLOCK_DISTANCE).mean()) if blocks.size else 0.0


class _Histogram:
    """Intensity histogram of the whole view; the distance is the share of pixels that change their bin."""

    def __init__(self, inside: np.ndarray) -> None:
        self.inside = inside

    def describe(self, small: np.ndarray) -> np.ndarray:
        values = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)[self.inside]
        counts = np.bincount(values // (256 // _BINS), minlength=_BINS)
        return counts / max(counts.sum(), 1)

    def distance(self, one: np.ndarray, other: np.ndarray) -> float:
        return float(np.abs(one - other).sum() / 2)


_DETECTORS: dict[str, type[_Detector]] = {"blockwise": _Blockwise, "histogram": _Histogram}


def small_inside(view: View | None, size: tuple[int, int]) -> np.ndarray:
    """Mark the pixels of a thumbnail inside the view, given the width and height of the frame."""
    if view is None:
        return np.ones((THUMBNAIL_SIDE, THUMBNAIL_SIDE), bool)
    return _shrink(view.crop(view.mask(*size)).astype(np.float32)) > 0.5


def _shrink(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (THUMBNAIL_SIDE, THUMBNAIL_SIDE), interpolation=cv2.INTER_AREA)


class CurvePart(NamedTuple):
    """Distances within a piece of a video, and what joins them to those of its neighbours."""

    steps: list[float]
    """Distances of consecutive frames."""
    across: list[float]
    """Distances of frames with one frame between them."""
    first: list[np.ndarray]
    """Descriptions of the first two frames."""
    last: list[np.ndarray]
    """Descriptions of the last two frames."""


def measure_part(thumbnails: Iterable[np.ndarray], inside: np.ndarray, method: str) -> CurvePart:
    """Measure the distances between the thumbnails of a piece; `inside` marks the pixels that count."""
    detector = _DETECTORS[method](inside)
    part = CurvePart([], [], [], [])
    for thumbnail in thumbnails:
        current = detector.describe(thumbnail)
        if part.last:
            part.steps.append(detector.distance(part.last[-1], current))
        if len(part.last) == 2:
            part.across.append(detector.distance(part.last.pop(0), current))
        if len(part.first) < 2:
            part.first.append(current)
        part.last.append(current)
    return part


def join_parts(parts: Sequence[CurvePart], inside: np.ndarray, method: str) -> np.ndarray:
    """Join the pieces of a video to its curve: the distance at each transition.

    Block-wise, it is the part that lasts: one odd frame is no cut.
    """
    distance = _DETECTORS[method](inside).distance
    steps: list[float] = []
    across: list[float] = []
    last: list[np.ndarray] = []
    for part in parts:
        if last and part.first:
            steps.append(distance(last[-1], part.first[0]))
        if len(last) == 2 and part.first:
            across.append(distance(last[0], part.first[0]))
        if last and len(part.first) == 2:
            across.append(distance(last[-1], part.first[1]))
        steps += part.steps
        across += part.across
        last = [*last, *part.last][-2:]
    curve = np.array(steps)
    if method == "blockwise":
        curve[:-1] = np.minimum(curve[:-1], across)
        curve[1:] = np.minimum(curve[1:], across)
    return curve


def _curve(frames: Iterable[np.ndarray], inside: np.ndarray | None, method: str) -> np.ndarray:
    """Measure the curve of RGB frames."""
    small = small_inside(None, (0, 0)) if inside is None else _shrink(inside.astype(np.float32)) > 0.5
    return join_parts([measure_part(map(_shrink, frames), small, method)], small, method)


def _threshold(curve: np.ndarray, settings: ShotSettings) -> np.ndarray:
    """Threshold of each transition; block-wise, a restless neighbourhood raises it."""
    if settings.method == "histogram":
        return np.full_like(curve, settings.threshold)
    if not curve.size:
        return curve
    width = min(len(curve), 2 * settings.window + 1)
    begins = np.clip(np.arange(len(curve)) - settings.window, 0, len(curve) - width)
    near = np.lib.stride_tricks.sliding_window_view(curve, width)[begins]
    median = np.median(near, axis=1)
    spread = 1.4826 * np.median(np.abs(near - median[:, None]), axis=1)
    return np.maximum(settings.floor, median + settings.spread * spread)
