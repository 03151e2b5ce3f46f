"""Shots: stretches of a video from one camera position, found by sharp changes of its intensity histograms.

The intensities of a small copy of each frame are freed of brightness and contrast, channel by channel (a lamp that is
turned up, and even smoke, changes little else), and counted in a grid of blocks. The change between two frames is the
mean over the blocks of the distance of their histograms, where one block counts only up to a limit: an instrument or
blood changes some blocks altogether, a cut changes all of them. A cut is a change that lasts and stands out from its
neighbourhood in time, so that the same settings serve videos of 1 and of 25 frames per second.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
from pydantic import Field

from suture.core import text as words
from suture.core.io import locked, remove_leftovers, write_bytes
from suture.core.settings import Settings
from suture.core.workers import cores, given, pool_for
from suture.data.dataset import Video

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from suture.data.sampling.frames import PixelSource
    from suture.data.store import FrameStore

_BLOCKS = 8
_BLOCK = 8
_SIDE = _BLOCKS * _BLOCK
_BINS = 16
_RANGE = 2.0
"""Histograms reach from −2 to 2 standard deviations."""
_LIMIT = 0.2
"""What one block counts at most."""
_BLOCK_OF = np.add.outer(np.arange(_SIDE) // _BLOCK * _BLOCKS, np.arange(_SIDE) // _BLOCK).ravel()
_WIDTH = 14
"""Inches of a drawing of shots."""
_LINES, _STRIP = 2, 12
"""Lines of its strip of frames, and the frames of each."""
_DRAWN_CUTS = 10
"""Cuts in it, evenly, where there are more."""
_TINTS = ("white", "0.94")
_CHUNK, _BEYOND = 512, 2
"""Frames of a piece of work, and how many more it needs to compare them with."""
_FEW = 2048
"""Frames below which starting processes gains nothing."""
_KEPT = "changes-1"
"""Where curves are kept: another number when they are measured otherwise, so that those of before are not taken."""


class ShotSettings(Settings):
    """When a change is a cut. The change of two frames lies between 0 and 0.2."""

    floor: float = Field(0.112, ge=0, description="a smaller change is never a cut")
    spread: float = Field(2.5, ge=0, description="how many spreads above the local median a cut stands")
    window: int = Field(16, ge=2, description="transitions on each side that make up the neighbourhood")
    longest_gap: float = Field(
        100, gt=1, description="frames whose numbers lie further apart, in typical steps, are never one shot"
    )


@dataclass(frozen=True, eq=False)
class Shots:
    """The shots of a video. `curve` and `threshold` have one value for each transition between its usable frames."""

    starts: tuple[int, ...]
    """Index of the first frame of each shot."""
    frames: tuple[int, ...]
    """Indices of the usable frames: the others belong to no shot."""
    curve: np.ndarray
    threshold: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, index: int) -> int:
        """The number of the shot that a usable frame belongs to."""
        place = bisect_left(self.frames, index)
        if place == len(self.frames) or self.frames[place] != index:
            raise KeyError(f"frame {index} is excluded or beyond the end: it belongs to no shot")
        return bisect_right(self.starts, index) - 1

    def members(self, shot: int) -> tuple[int, ...]:
        """Indices of the frames of one shot."""
        first = bisect_left(self.frames, self.starts[shot])
        last = bisect_left(self.frames, self.starts[shot + 1]) if shot + 1 < len(self) else len(self.frames)
        return self.frames[first:last]


def find_shots(
    video: Video, settings: ShotSettings | None = None, progress: Callable[[int], None] = lambda frames: None
) -> Shots:
    """The shots of a video; every usable frame is read once. `progress` is called with the number of frames done.

    A stretch of excluded frames separates shots.
    """
    view = video.view
    inside = view.crop(view.mask(*video.size))

    def frames() -> Iterable[np.ndarray]:
        for index in video.usable:
            yield view.crop(video.read(index))
            progress(1)

    numbers = [video.frames[index].number for index in video.usable]
    return shots_of_frames(frames(), numbers, video.usable, inside, settings, video.torn(video.usable))


def shots_of_frames(
    frames: Iterable[np.ndarray],
    numbers: Sequence[int],
    indices: Sequence[int] | None = None,
    inside: np.ndarray | None = None,
    settings: ShotSettings | None = None,
    torn: np.ndarray | None = None,
) -> Shots:
    """The shots of a sequence of RGB frames with these frame numbers; of the pixels, only those `inside` count.

    `indices` are the frames' places in their video (0, 1, 2, … if not given): where they jump, a shot ends, unless
    `torn` says whether it does between each frame and the next.

    >>> dark, light = np.zeros((2, 64, 64, 3), np.uint8)
    >>> light[:32, :, 1] = 200; dark[:, 32:, 2] = 200
    >>> shots_of_frames([dark] * 5 + [light] * 5, range(10)).starts
    (0, 5)
    """
    places = range(len(numbers)) if indices is None else indices
    apart = np.diff(np.asarray(places, dtype=int)) > 1 if torn is None else torn
    return _shots(_curve(_changes(frames, inside)), numbers, places, apart, settings or ShotSettings())


def stored_shots(
    videos: Sequence[Video],
    store: "FrameStore",
    workers: int | None = None,
    progress: Callable[[int], None] = lambda frames: None,
    waiting: Callable[[], object] = lambda: None,
) -> dict[str, Shots]:
    """The shots of videos whose usable frames are stored, found in `workers` processes (default: one per core).

    All frames of long videos are looked at: in one process that may take longer than to decode and store them in all.
    So the changes between them are kept beside them, and of several runs one measures while the others wait for it;
    `waiting` is called before that. What is a cut is decided anew each time.
    """
    curves = _kept(videos, store, progress)
    if missing := [video for video in videos if video.id not in curves]:
        with _alone(store.beside(missing[0].id, _KEPT).parent, waiting):
            curves |= _kept(missing, store, progress)  # by the run that was waited for
            curves |= _measured([video for video in missing if video.id not in curves], store, workers, progress)
    return {
        video.id: _shots(
            curves[video.id],
            [video.frames[index].number for index in video.usable],
            video.usable,
            video.torn(video.usable),
            ShotSettings(),
        )
        for video in videos
    }


def _kept(videos: Sequence[Video], store: "FrameStore", progress: Callable[[int], None]) -> dict[str, np.ndarray]:
    """The curves that are kept; what is damaged is measured again."""
    curves = {}
    for video in videos:
        with suppress(OSError, ValueError, EOFError):
            curve = np.load(store.beside(video.id, _KEPT))
            if curve.shape == (len(video.usable) - 1,):
                curves[video.id] = curve
                progress(len(video.usable))
    return curves


@contextmanager
def _alone(folder: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Wait for another run that writes there. Where nothing can be written, it is done without: it only costs time."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(locked(folder / ".lock", waiting))
            remove_leftovers(folder)
        yield


def _measured(
    videos: Sequence[Video], store: "FrameStore", workers: int | None, progress: Callable[[int], None]
) -> dict[str, np.ndarray]:
    """The curve of each video, kept as soon as it is known."""
    chunks = [
        _Chunk(video.id, video.usable[first : first + _CHUNK + _BEYOND], min(_CHUNK, len(video.usable) - first))
        for video in videos
        for first in range(0, len(video.usable), _CHUNK)
    ]
    inside = {video.id: store.inside(video.id) for video in videos}
    curves = {}
    with _each(store, inside, chunks, workers or cores()) as changes:
        for video, pieces in groupby(zip(chunks, changes, strict=True), key=lambda piece: piece[0].video):
            found = []
            for chunk, changed in pieces:
                found.append(changed)
                progress(chunk.count)
            curves[video] = _curve(_Changes(*map(np.concatenate, zip(*found, strict=True))))
            content = BytesIO()
            np.save(content, curves[video])
            with suppress(OSError):
                write_bytes(store.beside(video, _KEPT), content.getbuffer())
    return curves


class _Changes(NamedTuple):
    """How much frames differ from the next one, and from the one after it; as far as there are these."""

    next: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A piece of work: some frames of one video, of which the last ones are only compared with."""

    video: str
    indices: list[int]
    count: int
    """How many of them are this chunk's own."""


@contextmanager
def _each(
    pixels: "PixelSource", inside: Mapping[str, np.ndarray], chunks: Sequence[_Chunk], workers: int
) -> Iterator[Iterator[_Changes]]:
    """The changes of every chunk, in order."""
    if workers == 1 or sum(chunk.count for chunk in chunks) < _FEW:
        yield (_changes_of(chunk, pixels, inside) for chunk in chunks)
        return
    with pool_for("looking for shots", min(workers, len(chunks)), pixels, inside) as pool:
        yield pool.map(_in_worker, chunks)


def _in_worker(chunk: _Chunk) -> _Changes:
    return _changes_of(chunk, *given())


def _changes_of(chunk: _Chunk, pixels: "PixelSource", inside: Mapping[str, np.ndarray]) -> _Changes:
    frames = (pixels.frame(chunk.video, index) for index in chunk.indices)
    found = _changes(frames, inside[chunk.video])
    return _Changes(found.next[: chunk.count], found.after[: chunk.count])


def _shots(
    curve: np.ndarray, numbers: Sequence[int], indices: Sequence[int], apart: np.ndarray, settings: ShotSettings
) -> Shots:
    places = np.asarray(indices, dtype=int)
    if len(places) == 0:
        return Shots((), (), curve, curve)
    threshold = _threshold(curve, settings)
    steps = np.diff(np.asarray(numbers, dtype=np.float64))
    # Content decides about gaps in the numbers, since a camera may well stand still. But over the largest (minutes, in
    # CaDIS), or where a recorder counts anew, similar histograms are no evidence that nothing happened in between.
    typical = max(1.0, float(np.median(steps))) if len(steps) else 1.0
    cuts = (curve > threshold) | (steps <= 0) | (steps > settings.longest_gap * typical) | apart
    starts = places[np.flatnonzero(np.concatenate([[True], cuts]))]
    return Shots(tuple(starts.tolist()), tuple(places.tolist()), curve, threshold)


def _shrink(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)


def _histograms(frame: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Cumulated histograms of each block and channel: their differences grow with how far the intensities move."""
    values = _shrink(frame)[inside].astype(np.float32)
    if values.size == 0:
        return np.zeros((_BLOCKS**2, 3, _BINS - 1), np.float32)
    normal = (values - values.mean(axis=0)) / (values.std(axis=0) + 4)  # so that noise in a black frame stays noise
    bins = np.clip((normal + _RANGE) * (_BINS / (2 * _RANGE)), 0, _BINS - 1).astype(np.intp)
    cells = (_BLOCK_OF[inside.ravel(), None] * 3 + np.arange(3)) * _BINS + bins
    counts = np.bincount(cells.ravel(), minlength=_BLOCKS**2 * 3 * _BINS).reshape(-1, 3, _BINS)
    cumulated = counts.cumsum(axis=2, dtype=np.float32)
    return cumulated[..., :-1] / np.maximum(cumulated[..., -1:], 1)


def _counted(inside: np.ndarray) -> np.ndarray:
    """The blocks that lie inside the view by half or more."""
    return np.bincount(_BLOCK_OF[inside.ravel()], minlength=_BLOCKS**2) >= _BLOCK**2 / 2


def _changes(frames: Iterable[np.ndarray], inside: np.ndarray | None) -> _Changes:
    """Of RGB frames, of whose pixels only those `inside` count."""
    small_inside = np.ones((_SIDE, _SIDE), bool) if inside is None else _shrink(inside.astype(np.float32)) > 0.5
    counted = _counted(small_inside)

    def change(one: np.ndarray, other: np.ndarray) -> float:
        blocks = np.abs(one - other)[counted].mean(axis=(1, 2))
        return float(np.minimum(blocks, _LIMIT).mean()) if blocks.size else 0.0

    steps: list[float] = []
    across: list[float] = []
    last: deque[np.ndarray] = deque(maxlen=2)
    for frame in frames:
        current = _histograms(frame, small_inside)
        if last:
            steps.append(change(last[-1], current))
        if len(last) == 2:
            across.append(change(last[0], current))
        last.append(current)
    return _Changes(np.array(steps), np.array(across))


def _curve(changes: _Changes) -> np.ndarray:
    """The change at each transition, as far as it lasts: what one odd frame shows and takes back is no cut."""
    curve = changes.next.copy()
    curve[:-1] = np.minimum(curve[:-1], changes.after)
    curve[1:] = np.minimum(curve[1:], changes.after)
    return curve


def _threshold(curve: np.ndarray, settings: ShotSettings) -> np.ndarray:
    """What a change must exceed: the local median and a few spreads, so that a restless video needs more."""
    if not curve.size:
        return curve
    width = min(len(curve), 2 * settings.window + 1)
    begins = np.clip(np.arange(len(curve)) - settings.window, 0, len(curve) - width)
    near = np.lib.stride_tricks.sliding_window_view(curve, width)[begins]
    median = np.median(near, axis=1)
    spread = 1.4826 * np.median(np.abs(near - median[:, None]), axis=1)
    return np.maximum(settings.floor, median + settings.spread * spread)


def draw_shots(video: Video, shots: Shots, labelled: Iterable[int] = ()) -> "Figure":
    """A strip of frames from all over the video, and below it the curve with its cuts; ticks at labelled frames.

    >>> draw_shots(video, find_shots(video)).savefig("shots.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure  # on first use: a run's start would take half a second longer

    cuts = shots.starts[1:]
    shown = _shown(shots)
    lines = max(1, -(-len(shown) // _STRIP))
    height = _WIDTH / _STRIP * video.view.height / video.view.width + 0.3
    figure = Figure(figsize=(_WIDTH, lines * height + 2.6), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[lines * height, 2.6])
    axes = figure.add_subplot(rows[1])
    pictures = rows[0].subgridspec(lines, _STRIP)
    for place, index in enumerate(shown):
        picture = figure.add_subplot(pictures[divmod(place, _STRIP)])
        picture.imshow(_thumbnail(video, index))
        is_cut = index in cuts
        title = f"{'cut at ' if is_cut else ''}{index}"
        picture.set_title(title, fontsize=8, pad=3, color="tab:red" if is_cut else "black")
        picture.set(xticks=[], yticks=[])
        picture.spines[:].set_visible(False)
        if is_cut:
            picture.spines["left"].set(visible=True, color="tab:red", linewidth=3)
    for number, start in enumerate(shots.starts):
        end = shots.members(number)[-1]
        axes.axvspan(start, end + 1, color=_TINTS[number % 2], linewidth=0)
        if end - start > len(video) / 20:
            said = axes.text((start + end) / 2, 0.97, f"shot {number + 1}", ha="center", va="top", fontsize=8)
            said.set_transform(axes.get_xaxis_transform())
    torn = np.flatnonzero(video.torn(shots.frames))  # the lines begin anew behind excluded frames
    frames, curve, threshold = (
        np.insert(np.asarray(values, float), torn, np.nan)
        for values in (shots.frames[1:], shots.curve, shots.threshold)
    )
    axes.plot(frames, curve, color="black", linewidth=0.8, label="change")
    axes.plot(frames, threshold, color="tab:orange", linewidth=1, label="threshold")
    for number, cut in enumerate(cuts):
        axes.axvline(cut, color="tab:red", linewidth=1, alpha=0.7, label="cut" if number == 0 else None)
    at_cuts = [shots.curve[bisect_left(shots.frames, cut) - 1] for cut in cuts]
    axes.plot(cuts, at_cuts, "o", color="tab:red", markersize=3)
    for number, (first, last) in enumerate(_runs(sorted(video.excluded))):
        label = "excluded" if number == 0 else None
        axes.axvspan(first - 0.5, last + 0.5, color="tab:blue", fill=False, hatch="///", linewidth=0, label=label)
    if ticks := list(labelled):
        axes.plot(ticks, np.zeros(len(ticks)), "^", color="tab:green", markersize=5, clip_on=False, label="labelled")
    axes.set(xlim=(0, max(1, len(video) - 1)), ylim=(0, None), xlabel="frame", ylabel="change of the histograms")
    axes.set_title(f"{video.id}: {words.number(len(shots), 'shot')}", fontsize=10, loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=5, frameon=False)
    return figure


def _shown(shots: Shots) -> list[int]:
    """The frames of the strip: on both sides of cuts, as far as there is room, and others evenly between."""
    cuts = shots.starts[1:]
    some = [cuts[i * len(cuts) // _DRAWN_CUTS] for i in range(_DRAWN_CUTS)] if len(cuts) > _DRAWN_CUTS else cuts
    sides = {shots.frames[bisect_left(shots.frames, cut) - before] for cut in some for before in (0, 1)}
    others = [index for index in shots.frames if index not in sides]
    left = min(len(others), _LINES * _STRIP - len(sides))
    return sorted(sides | {others[(2 * i + 1) * len(others) // (2 * left)] for i in range(left)})


def _thumbnail(video: Video, index: int) -> np.ndarray:
    frame = video.view.crop(video.read(index))
    scale = 128 / max(frame.shape[:2])
    return cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else frame


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each stretch of consecutive indices."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return runs
