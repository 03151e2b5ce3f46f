"""One clip through a model: decoding, network, drawing and encoding at the same time.

- The reader's thread decodes frames, and a few threads turn them into RGB.
- A few threads prepare them in batches, and the model's thread sends these to the device; on a CPU, each core does both
  for one of them.
- A pool of threads makes masks and pictures: enlarged and drawn, if no GPU has done it; compressed, written.
- Another one compares neighbouring frames along the flow.
- The calling thread does what needs the order: videos and journal.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby, islice, starmap
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np

from suture.data.classes import IGNORE
from suture.data.view import View
from suture.deploy.flow import Small, flow_agreement
from suture.deploy.inputs import RECORD, Clip, ClipView, Shown
from suture.deploy.outputs import (
    Journal,
    Masks,
    Table,
    VideoWriter,
    areas,
    count_pixels,
    number,
    read_written_mask,
    table_columns,
    to_yuv,
    video_frame,
    video_writer,
    write_mask,
    write_picture,
    write_table,
)
from suture.deploy.overlap import ahead, cores, in_order
from suture.deploy.overlay import Overlay
from suture.deploy.predictor import Pending, Predictor, Prepared
from suture.deploy.smoothing import Smoother
from suture.errors import UserError
from suture.files import remove_leftovers, write_json

ViewSetting = View | Literal["trained", "auto"] | None
FORMAT = 1
"""Of `prediction.json`."""
_TOGETHER = 4
"""Frames that are handed on together, where they come in batches: to hand on each of them would hold up all threads."""
_FINISHING = 8
"""Threads that make files of predictions: enough for several hundred large frames a second."""
_PREPARING = 2
"""Batches that are prepared at once for a device: to copy the frames of one takes about as long as to predict them."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What is written of each clip, and how its frames are looked at."""

    masks: Masks = "png"
    overlay: bool = True
    table: Table = "csv"
    view: ViewSetting = "trained"
    smooth: float = 0.0
    """How much of the frame before is carried over (`Smoother`); 0 is nothing."""

    def to_json(self) -> dict[str, Any]:
        """All but the view, which the model may decide."""
        return {"masks": self.masks, "overlay": self.overlay, "table": self.table, "smooth": self.smooth}


def parse_view(said: str) -> ViewSetting:
    """A view as the command line says it: trained, auto, none, or x,y,w,h.

    >>> parse_view("0,40,1280,944")
    View(x=0, y=40, width=1280, height=944, circle=None)
    """
    if said in ("trained", "auto"):
        return "auto" if said == "auto" else "trained"
    if said == "none":
        return None
    try:
        numbers = [int(part) for part in said.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise UserError(f"--view is {said}, expected trained, auto, none or x,y,w,h in pixels.")
    return View.parse(numbers, "--view")


class Outcome(NamedTuple):
    """How a clip went."""

    frames: int
    """Frames that have a mask now."""
    before: int
    """Frames that were done by an earlier start."""
    problems: list[str]
    view: str
    """Which one it was, in words."""


class Group(NamedTuple):
    """Neighbouring frames of one size, for one run of the network; or frames where there is nothing to predict."""

    shown: list[Shown]
    predict: bool


class Found(NamedTuple):
    """A frame and where its prediction is."""

    shown: Shown
    pending: Pending | None
    place: int = 0


@dataclass(frozen=True, eq=False)
class Finished:
    """A frame with all that can be made of it without its neighbours."""

    index: int
    row: Row
    known: bool
    mask: np.ndarray | None = None
    small: Small | None = None
    overlay: Any = None
    """As a frame of a video."""


class Job:
    """A clip on its way into a folder of results."""

    def __init__(self, predictor: Predictor, clip: Clip, folder: Path, settings: Settings, batch: int) -> None:
        self.predictor = predictor
        self.clip = clip
        self.folder = folder
        self.settings = settings
        self.batch = batch
        self.together = min(_TOGETHER, batch)
        self.masks: Masks = "png" if clip.images and settings.masks == "video" else settings.masks
        self.overlay_video = settings.overlay and not clip.images
        self.journal = Journal(folder / ".journal.jsonl")
        self.record = folder / RECORD
        # Carried over from frame to frame, smoothing cannot begin in the middle; a video cannot be gone on with.
        self.resumes = self.masks == "png" and not settings.smooth
        self.known: dict[int, Row] = {}
        self._overlays: dict[tuple[int, ...], Overlay] = {}
        self._lock = Lock()

    @property
    def made_of(self) -> dict[str, Any]:
        """All that decides the results: they are gone on with, or left as they are, only where this is the same."""
        predictor = self.predictor
        return {
            "format": FORMAT,
            "model": predictor.network.identity,
            "input": self.clip.identity,
            "flip": predictor.flip,
            "scales": list(predictor.scales),
            "window": predictor.window,
            "view": self.view.view and self.view.view.to_json() if self.view != "auto" else "auto",
            **self.settings.to_json(),
        }

    @property
    def view(self) -> ClipView | Literal["auto"]:
        """The view as the settings or the model state it."""
        setting = self.settings.view
        if setting == "trained":
            return self.predictor.network.view
        return setting if setting == "auto" else ClipView(setting)

    def run(self, progress: Callable[[int], None]) -> Outcome:
        """Do it; `progress` is called with the number of frames done."""
        remove_leftovers(self.folder)
        self.known = {i: row for i, row in self.journal.read(self.made_of).items() if self._is_there(i, row)}
        progress(sum(not self._needed(index) for index in self.known))
        found_inside = self.view == "auto" and self.predictor.network.cuts
        view = self.clip.view(ClipView(None, origin="of which the model cuts its view") if found_inside else self.view)
        rows = dict(self.known)
        together = self.together
        with (
            Results(self) as results,
            closing(ahead(self._groups(view), depth=2)) as groups,
            closing(ahead(self._predicted(groups, view), 2 * self.batch // together, together)) as found,
            closing(in_order(self._finish, found, min(_FINISHING, cores()), together)) as finished,
            closing(in_order(_compared, _with_the_one_before(finished), 2, together)) as compared,
        ):
            for one in compared:
                results.add(one)
                rows[one.index] = one.row
                progress(1)
        ordered = [rows[index] for index in sorted(rows)]
        if all(row["problem"] for row in ordered):
            raise UserError(
                f"{self.clip.path}: none of its {len(ordered)} frames can be used; the first: {ordered[0]['problem']}"
            )
        problems = self._problems(ordered)
        if self.settings.table != "none":
            path = self.folder / f"frames.{self.settings.table}"
            write_table(path, ordered, table_columns(self.predictor.classes))
        self._write_record(ordered, view.view, problems)
        self.journal.path.unlink(missing_ok=True)
        predicted = sum(not row["problem"] for row in ordered)
        return Outcome(predicted, len(self.known), problems, str(view))

    def _is_there(self, index: int, row: Row) -> bool:
        """Whether a frame that the journal names need not be predicted again."""
        if not self.resumes or row["problem"]:
            return False
        there = self._mask_path(index).exists()
        return there and (not self.clip.images or not self.settings.overlay or self._picture_path(index).exists())

    def _needed(self, index: int) -> bool:
        """Whether a frame has to be decoded: it is new, an overlay video shows it, or the next is compared with it."""
        return (
            index not in self.known
            or self.overlay_video
            or (index + 1 < len(self.clip) and index + 1 not in self.known)
        )

    def _groups(self, view: ClipView) -> Iterator[Group]:
        """Frames in batches of one size; among themselves those that are not to be predicted."""
        needed = filter(self._needed, range(len(self.clip)))
        frames = (self._usable(shown, view) for shown in self.clip.frames(needed, self.together))
        for size, alike in groupby(frames, self._size_to_predict):
            while shown := list(islice(alike, self.batch)):
                yield Group(shown, size is not None)

    def _size_to_predict(self, shown: Shown) -> tuple[int, ...] | None:
        """The size of a frame that the network has to see; None for one that was done before or does not decode."""
        return None if shown.pixels is None or shown.index in self.known else shown.pixels.shape

    def _usable(self, shown: Shown, view: ClipView) -> Shown:
        """The frame, or why it cannot be used although it decodes."""
        if shown.pixels is None:
            return shown
        height, width = shown.pixels.shape[:2]
        size = f"{self.clip.frame_name(shown.index)} has {width}×{height} pixels"
        if self.clip.file is not None and (width, height) != self.clip.file.size:
            expected = "×".join(map(str, self.clip.file.size))
            return Shown(shown.index, None, f"{size}, expected {expected} as the first frame of its video.")
        here = view.of(shown.pixels)
        if here is not None and (here.x >= width or here.y >= height):
            return Shown(shown.index, None, f"{size}, so that the view {here.to_json()['rect']} lies outside.")
        return shown

    def _predicted(self, groups: Iterator[Group], view: ClipView) -> Iterator[Found]:
        smoother = Smoother(self.settings.smooth) if self.settings.smooth else None
        # Batches of one length are one graph on a GPU; but smoothing, from frame to frame, takes no extra ones.
        places = 0 if smoother else self.batch

        def prepare(group: Group) -> tuple[Group, Prepared | None]:
            if not group.predict:
                return group, None
            pixels = [one.pixels for one in group.shown if one.pixels is not None]
            return group, self.predictor.prepare(pixels, view.of(pixels[0]), places)

        def begin(group: Group, prepared: Prepared | None) -> list[Found]:
            pending = prepared and self.predictor.begin(prepared, smoother, self.overlay_video)
            return [Found(shown, pending, place) for place, shown in enumerate(group.shown)]

        if self.predictor.side_by_side and smoother is None:
            begun: Iterator[list[Found]] = in_order(lambda group: begin(*prepare(group)), groups, cores())
        else:
            begun = starmap(begin, in_order(prepare, groups, _PREPARING))
        for found in begun:
            yield from found

    def _finish(self, found: Found) -> Finished:
        """What can be made of one frame alone, by any thread."""
        index, pixels = found.shown.index, found.shown.pixels
        row: Row = {"frame": index, "name": self.clip.frame_name(index), "problem": found.shown.problem}
        if self.clip.times is not None:
            row["time"] = round(float(self.clip.times[index]), 6)
        if pixels is None:
            return Finished(index, row, False)
        pending, known = found.pending, found.pending is None
        planes: np.ndarray | None = None
        if pending is None:
            mask = read_written_mask(self._mask_path(index))
            if mask is None or mask.shape != pixels.shape[:2]:  # it was there a moment ago
                raise UserError(f"{self._mask_path(index)} was changed or removed: start again with --force.")
            row = self.known[index]
        else:
            mask, confidence, entropy = pending[found.place]
            row["confidence"], row["entropy"] = number(confidence), number(entropy)
            counted, planes = pending.pixels(found.place), pending.overlay(found.place)
            row |= areas(count_pixels(mask) if counted is None else counted, self.predictor.classes)
        self._begin_journal()
        if self.settings.overlay and planes is None and (not known or self.overlay_video):
            drawn = self._overlay(mask.shape)(pixels, mask)
            if self.overlay_video:
                planes = to_yuv(drawn)
            else:
                write_picture(self._picture_path(index), drawn)
        if not known and self.masks == "png":
            write_mask(self._mask_path(index), mask, self.predictor.classes)
        overlay = None if planes is None else video_frame(planes, "yuv420p")
        return Finished(index, row, known, mask, Small.of(pixels, mask), overlay)

    def _begin_journal(self) -> None:
        """Say what the folder is going to hold before anything is written there."""
        with self._lock:
            if not self.journal.is_open:
                self.journal.begin(self.made_of, list(self.known.values()))

    def _overlay(self, shape: tuple[int, ...]) -> Overlay:
        if shape not in self._overlays:
            self._overlays[shape] = Overlay(self.predictor.classes, shape[1], shape[0])
        return self._overlays[shape]

    def _mask_path(self, index: int) -> Path:
        return self.folder / "masks" / f"{self.clip.frame_name(index)}.png"

    def _picture_path(self, index: int) -> Path:
        return self.folder / "overlay" / f"{self.clip.frame_name(index)}.jpg"

    def _problems(self, rows: list[Row]) -> list[str]:
        problems = [row["problem"] for row in rows if row["problem"]]
        if self.clip.file is not None and (missing := self.clip.file.missing):
            problems.append(
                f"{self.clip.path.name} stops after {len(rows):,} frames, about {missing:,} before its end: the file "
                "is cut off; what is there was predicted."
            )
        return problems

    def _write_record(self, rows: list[Row], view: View | None, problems: list[str]) -> None:
        classes = self.predictor.classes
        colors = zip(classes.names, classes.colors, strict=True)
        write_json(
            self.record,
            {
                "made_of": self.made_of,
                "frames": len(rows),
                "predicted": sum(not row["problem"] for row in rows),
                "problems": problems,
                "view": view.to_json() if view else None,
                "classes": [{"id": i, "name": name, "color": color} for i, (name, color) in enumerate(colors)],
                "ignore": IGNORE,
            },
        )


def _with_the_one_before(finished: Iterator[Finished]) -> Iterator[tuple[Small | None, Finished]]:
    before: Small | None = None
    for one in finished:
        yield before, one
        before = one.small or before


def _compared(pair: tuple[Small | None, Finished]) -> Finished:
    before, one = pair
    if one.small is not None and not one.known:
        one.row["flow_agreement"] = number(flow_agreement(before, one.small)) if before else None
    return one


class Results:
    """The files of a job that are written in order: journal and videos; with the first frame that has a mask."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.overlay: VideoWriter | None = None
        self.masks: VideoWriter | None = None
        self._files = ExitStack()
        self._waiting: list[Finished] | None = []
        """Frames that came before there was a mask; None once there was one."""
        self._size = (1, 1)

    def __enter__(self) -> "Results":
        self._files.callback(self.job.journal.close)
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._files.__exit__(*raised)

    def add(self, one: Finished) -> None:
        """A frame in its turn."""
        if self._waiting is not None:
            self._waiting.append(one)
            if one.mask is None:
                return
            self._begin(one.mask)
        waiting, self._waiting = self._waiting or [one], None
        for each in waiting:
            self._write(each)

    def _begin(self, mask: np.ndarray) -> None:
        job = self.job
        self._size = mask.shape
        if job.clip.file is not None:
            fps = job.clip.file.fps
            if job.overlay_video:
                self.overlay = self._files.enter_context(video_writer(job.folder / "overlay.mp4", "libx264", fps))
            if job.masks == "video":
                self.masks = self._files.enter_context(video_writer(job.folder / "masks.mkv", "ffv1", fps))

    def _write(self, one: Finished) -> None:
        if self.overlay is not None and one.overlay is not None:
            self.overlay.add(one.overlay, one.row["time"])
        if self.masks is not None:
            # A frame without a mask is all ignore, so that the frames' numbers stay those of the original.
            mask = one.mask if one.mask is not None else np.full(self._size, IGNORE, np.uint8)
            self.masks.add(video_frame(mask, "gray"), one.row["time"])
        if not one.known:
            self.job.journal.add(one.row)
