"""One clip through a model: decoding, network, drawing and encoding at the same time.

- The reader's thread decodes frames, and a few threads turn them into RGB; most frames for a GPU stay as they are, and
  the GPU does it.
- A few threads prepare them in batches, and the model's thread sends these to the device; on a CPU, each core does both
  for one of them.
- Files are made of predictions (`clip_files`): by threads of this process; beside a GPU by other processes
  (`fast.writer_pool`), which are told of each batch when the GPU is done with it.
- The calling thread notes down what is done.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import cached_property
from itertools import groupby, islice, starmap
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np

from suture.core.errors import UserError
from suture.core.io import remove_leftovers, write_json
from suture.data.classes import IGNORE
from suture.data.video import YuvPlanes
from suture.data.video_index import JOURNAL, RECORD
from suture.data.view import View
from suture.data.yuv import YuvToRgb
from suture.prediction.clip_files import (
    COMPARING,
    FINISHING,
    ClipFiles,
    Done,
    Finished,
    Plan,
    Seen,
    agreement,
    with_the_one_before,
)
from suture.prediction.fast.writer_pool import PLACES, Batch, Place, Writer
from suture.prediction.inputs import Clip, ClipView, Shown, fill
from suture.prediction.options import Settings
from suture.prediction.outputs import Journal, areas, count_pixels, number, table_columns, write_table
from suture.prediction.overlap import TOGETHER, ahead, cores, in_order
from suture.prediction.predictor import Pending, Predictor, Prepared
from suture.prediction.smoothing import Smoother
from suture.prediction.stability import Small

FORMAT = 1
"""Of `prediction.json`."""
_PREPARING = 2
"""Batches that are prepared at once for a device: to copy the frames of one may take as long as to predict them."""
Row = dict[str, Any]


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


class Begun(NamedTuple):
    """Frames, and where their predictions will be; with their place in memory that is shared."""

    shown: list[Shown]
    pending: Pending | None
    place: Place | None


class Job:
    """A clip on its way into a folder of results."""

    def __init__(self, predictor: Predictor, clip: Clip, folder: Path, settings: Settings, batch: int) -> None:
        self.predictor = predictor
        self.clip = clip
        self.folder = folder
        self.settings = settings
        self.batch = batch
        self.together = min(TOGETHER, batch)
        self.journal = Journal(folder / JOURNAL)
        self.record = folder / RECORD
        self.known: dict[int, Row] = {}
        """The rows of frames that an earlier start has done."""
        self.rows: dict[int, Row] = {}
        self._lock = Lock()

    @cached_property
    def plan(self) -> Plan:
        masks, overlay, video = self.settings.masks, self.settings.overlay, self.clip.file
        if video is None:
            return Plan(self.folder, self.predictor.classes, masks != "none", overlay, False, False)
        return Plan(
            self.folder,
            self.predictor.classes,
            masks == "png",
            False,
            masks == "video",
            overlay,
            fps=video.fps,
            pixel_aspect=video.pixel_aspect,
        )

    @property
    def made_of(self) -> dict[str, Any]:
        """All that decides the results: they are gone on with, or left as they are, only where this is the same."""
        return {**self.made_by, "input": self.clip.identity}

    @property
    def made_by(self) -> dict[str, Any]:
        """All of it but the input: the same for all clips of a command."""
        predictor = self.predictor
        return {
            "format": FORMAT,
            "model": predictor.network.identity,
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
        self.clip.refuse_few_bits()
        remove_leftovers(self.folder)
        self.known = {i: row for i, row in self.journal.read(self.made_of).items() if self._is_there(i, row)}
        self.rows = rows = dict(self.known)
        progress(sum(not self._needed(index) for index in self.known))
        found_inside = self.view == "auto" and self.predictor.network.cuts
        view = self.clip.view(ClipView(None, origin="of which the model cuts its view") if found_inside else self.view)
        if self.clip.file is not None and (beyond := view.beyond(*self.clip.file.size)):
            raise UserError(f"{self.clip.path}: {beyond}.")  # before all of it is decoded in vain
        writer = self.predictor.writer
        with (
            closing(self.journal),
            writer or nullcontext(),
            closing(ahead(self._groups(view), depth=2)) as groups,
            closing(ahead(self._begun(groups, view, writer), depth=2)) as begun,
            closing(self._written_here(begun) if writer is None else self._written_by(writer, begun)) as written,
        ):
            self._note_down(written, progress)
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
        # Carried over from frame to frame, smoothing cannot begin in the middle; a video cannot be gone on with.
        if not self.plan.masks or self.settings.smooth or row["problem"]:
            return False
        name = self.clip.frame_name(index)
        return self.plan.mask_path(name).exists() and (not self.plan.pictures or self.plan.picture_path(name).exists())

    def _needed(self, index: int) -> bool:
        """Whether a frame has to be decoded: it is new, an overlay video shows it, or the next is compared with it."""
        return (
            index not in self.known
            or self.plan.overlay_video
            or (index + 1 < len(self.clip) and index + 1 not in self.known)
        )

    def _groups(self, view: ClipView) -> Iterator[Group]:
        """Frames in batches of one size; among themselves those that are not to be predicted."""
        needed = filter(self._needed, range(len(self.clip)))
        decoded = self.clip.frames(needed, self.together, planes=self.predictor.gpu is not None)
        frames = (self._usable(shown, view) for shown in decoded)
        for (predict, *_), alike in groupby(frames, self._kind):
            while shown := list(islice(alike, self.batch)):
                yield Group(shown, predict)

    def _kind(self, shown: Shown) -> tuple[bool, tuple[int, int] | None, YuvToRgb | None]:
        """Whether the network has to see a frame, one that decodes and was not done before; its size, and colours."""
        return shown.pixels is not None and shown.index not in self.known, shown.size, shown.colours

    def _usable(self, shown: Shown, view: ClipView) -> Shown:
        """The frame, or why it cannot be used although it decodes."""
        if shown.size is None:
            return shown
        height, width = shown.size
        name = self.clip.frame_name(shown.index)
        if self.clip.file is not None and (width, height) != self.clip.file.size:
            problem = f"{name} has {width}×{height} pixels, expected {'×'.join(map(str, self.clip.file.size))}"
            return Shown(shown.index, None, f"{problem} as the first frame of its video.")
        if beyond := view.beyond(width, height):
            return Shown(shown.index, None, f"{name}: {beyond}.")
        return shown

    def _begun(self, groups: Iterator[Group], view: ClipView, writer: Writer | None) -> Iterator[Begun]:
        smoother = Smoother(self.settings.smooth) if self.settings.smooth else None
        # Batches of one length are one graph on a GPU; but smoothing, from frame to frame, takes no extra ones.
        length = 0 if smoother else self.batch

        def in_places() -> Iterator[tuple[Group, Place | None]]:
            # In order: a batch that waited for the memory of later ones would wait for ever.
            for group in groups:
                yield group, writer.take() if writer and group.shown[0].pixels is not None else None

        def prepare(placed: tuple[Group, Place | None]) -> tuple[Group, Place | None, Prepared | None]:
            group, place = placed
            pixels: list[Any] = [one.pixels for one in group.shown if one.pixels is not None]
            if group.predict:
                here = view.of(group.shown[0].size or ())
                return group, place, self.predictor.prepare(pixels, here, length, place)
            if place is not None:
                fill(place.pixels.shaped((len(pixels), *pixels[0].shape)), pixels)
            return group, place, None

        def begin(group: Group, place: Place | None, prepared: Prepared | None) -> Begun:
            pending = prepared and self.predictor.begin(prepared, smoother, self.plan.overlay_video)
            return Begun(group.shown, pending, place)

        if self.predictor.side_by_side and smoother is None:
            yield from in_order(lambda group: begin(*prepare(group)), in_places(), cores())
        else:
            with closing(in_order(prepare, in_places(), _PREPARING)) as prepared:
                yield from starmap(begin, prepared)

    def _written_here(self, begun: Iterator[Begun]) -> Generator[list[Done], None, None]:
        """Files made by threads of this process."""
        files = ClipFiles(self.plan)
        frames = ((one, place) for one in begun for place in range(len(one.shown)))

        def finish(frame: tuple[Begun, int]) -> Finished:
            return files.finish(self._seen(*frame))

        def compare(pair: tuple[Small | None, Finished]) -> tuple[Finished, Done]:
            return pair[1], agreement(*pair)

        with (
            files,
            closing(in_order(finish, frames, min(FINISHING, cores()), self.together)) as finished,
            closing(in_order(compare, with_the_one_before(finished), COMPARING, self.together)) as compared,
        ):
            for one, done in compared:
                files.add(one)
                yield [done]

    def _written_by(self, writer: Writer, begun: Iterator[Begun]) -> Generator[list[Done], None, None]:
        """Files made by other processes."""

        def sent() -> Iterator[Place | None]:
            for one in begun:
                writer.send(self._batch(one))
                yield one.place

        # The clip is left first: threads that wait for memory hear of it there.
        with closing(ahead(sent(), depth=PLACES)) as places, writer.clip(self.plan):
            for place in places:
                done = writer.receive()
                if place is not None:
                    writer.give_back(place)
                yield done

    def _seen(self, begun: Begun, place: int) -> Seen:
        """A frame for `ClipFiles`, and its row."""
        shown, mask, planes = begun.shown[place], None, None
        if begun.pending is None:
            self._begin_row(shown)
        else:
            mask, *certainty = begun.pending[place]
            made = begun.pending.counts, begun.pending.planes  # by a GPU
            counts, planes = (None if all_of is None else all_of[place].numpy() for all_of in made)
            self._begin_row(shown, certainty, count_pixels(mask) if counts is None else counts)
        name, time = self.clip.frame_name(shown.index), self._time(shown.index) or 0.0
        pixels = shown.pixels
        if isinstance(pixels, YuvPlanes):
            (pixels,) = fill(np.empty((1, *pixels.shape), np.uint8), [pixels])
        return Seen(shown.index, name, time, pixels, mask, planes, shown.colours)

    def _batch(self, begun: Begun) -> Batch:
        """The same of many frames whose masks are in shared memory."""
        if begun.pending is None:
            for shown in begun.shown:
                self._begin_row(shown)
        else:
            for shown, (certainty, pixels) in zip(begun.shown, begun.pending.measured, strict=False):
                self._begin_row(shown, certainty, pixels)
        indices = [shown.index for shown in begun.shown]
        frames = [(index, self.clip.frame_name(index), self._time(index) or 0.0) for index in indices]
        return Batch(frames, begun.place.spans if begun.place else (None,) * 3, begun.shown[0].colours)

    def _time(self, index: int) -> float | None:
        return None if self.clip.times is None else round(float(self.clip.times[index]), 6)

    def _begin_row(self, shown: Shown, certainty: Sequence[float] = (), pixels: np.ndarray | None = None) -> None:
        """Note what is known of a frame before its files are written; its row, if an earlier start did it, is there."""
        index = shown.index
        if shown.pixels is not None:
            self._begin_journal()
            if pixels is None:
                return
        row: Row = {"frame": index, "name": self.clip.frame_name(index), "problem": shown.problem}
        if (time := self._time(index)) is not None:
            row["time"] = time
        if pixels is not None:
            row["confidence"], row["entropy"] = map(number, certainty)
            row |= areas(pixels, self.predictor.classes)
        self.rows[index] = row

    def _begin_journal(self) -> None:
        """Say what the folder is going to hold before anything is written there."""
        with self._lock:
            if not self.journal.is_open:
                self.journal.begin(self.made_of, list(self.known.values()))

    def _note_down(self, written: Iterable[list[Done]], progress: Callable[[int], None]) -> None:
        """In the journal, what is done; frames before the first that can be used wait for it."""
        waiting: list[Row] = []
        for some in written:
            for index, flow in some:
                row = self.rows[index]
                if row is not self.known.get(index):
                    if not row["problem"]:
                        row["flow_agreement"] = flow
                    waiting.append(row)
                progress(1)
            if waiting and self.journal.is_open:
                self.journal.add(waiting)
                waiting = []

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
