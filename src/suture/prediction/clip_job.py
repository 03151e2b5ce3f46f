"""One clip through a model: decoding, network, drawing and encoding at the same time.

- A thread decodes frames, and a few threads convert them to RGB; planes stay as they are for a GPU.
- A few threads prepare batches, and one thread sends them to the device. On a CPU each core does both for one batch.
- A writer makes the files (`writer.py`): by threads; beside a GPU and for long clips by processes (`fast`).
- The calling thread keeps the journal and the table.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import groupby, islice, starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

from suture.core.errors import UserError
from suture.core.io import remove_leftovers, write_json
from suture.data.classes import IGNORE
from suture.data.video_index import JOURNAL, RECORD
from suture.data.view import View
from suture.data.yuv import YuvToRgb
from suture.prediction.clip_files import OutputPlan
from suture.prediction.fast.process_writer import SharedBatch
from suture.prediction.frame_table import class_areas, finite, table_columns, write_table
from suture.prediction.input_clip import ClipFrame, ClipView, InputClip, fill_batch
from suture.prediction.journal import Journal
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor, PreparedBatch
from suture.prediction.prefetch import FRAMES_TOGETHER, cores, map_ordered, prefetch
from suture.prediction.smoother import Smoother
from suture.prediction.writer import PredictedBatch, ThreadedWriter, Writer, WrittenFrame

FORMAT = 1
"""Format of `prediction.json`."""
PREPARE_THREADS = 2
"""Batches prepared in parallel for a device; copying the frames of a batch may take as long as predicting them."""
MIN_FRAMES_FOR_PROCESSES = 300
"""Shorter clips are written by threads: processes would take longer to start."""
Row = dict[str, Any]


class ClipResult(NamedTuple):
    """Outcome of a clip."""

    frames: int
    """Frames that have a mask."""
    before: int
    """Frames that were done by an earlier start."""
    problems: list[str]
    view: str
    """Description of the view."""


class ClipJob:
    """Predicts one clip into a folder.

    Args:
        predictor: The model.
        clip: Frames.
        folder: Folder of its results.
        settings: Files to write.
        batch: Frames per batch.
    """

    def __init__(
        self, predictor: Predictor, clip: InputClip, folder: Path, settings: PredictionSettings, batch: int
    ) -> None:
        self.predictor = predictor
        self.clip = clip
        self.folder = folder
        self.settings = settings
        self.batch = batch
        self.journal = Journal(folder / JOURNAL)
        self.record = folder / RECORD
        self.known: dict[int, Row] = {}
        """Rows of frames that an earlier start has done."""

    @cached_property
    def plan(self) -> OutputPlan:
        """Files to write."""
        masks, overlay, video = self.settings.masks, self.settings.overlay, self.clip.file
        if video is None:
            return OutputPlan(
                self.folder,
                self.predictor.classes,
                masks=masks != "none",
                pictures=overlay,
                style=self.settings.style,
            )
        return OutputPlan(
            self.folder,
            self.predictor.classes,
            masks=masks == "png",
            mask_video=masks == "video",
            overlay_video=overlay,
            style=self.settings.style,
            fps=video.fps / self.settings.every,
            begin=float(video.times[self.indices[0]]),
            title=self.clip.name,
            pixel_aspect=video.pixel_aspect,
        )

    @cached_property
    def indices(self) -> Sequence[int]:
        """Frames to predict."""
        return self.clip.indices(self.settings.start, self.settings.end, self.settings.every)

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that determines the results. Existing results are kept or continued only if it is unchanged."""
        predictor = self.predictor
        return {
            "format": FORMAT,
            "model": predictor.network.identity,
            "flip": predictor.flip,
            "scales": list(predictor.scales),
            "window": predictor.window,
            "view": self.view.view and self.view.view.to_json() if self.view != "auto" else "auto",
            "input": self.clip.identity,
            **self.settings.to_json(),
        }

    @property
    def view(self) -> ClipView | Literal["auto"]:
        """The view as the settings or the model state it."""
        setting = self.settings.view
        if setting == "trained":
            return self.predictor.network.view
        return setting if setting == "auto" else ClipView(setting)

    @property
    def writer(self) -> Writer:
        """The writer for this clip."""
        processes = self.predictor.process_writer if len(self.indices) >= MIN_FRAMES_FOR_PROCESSES else None
        return processes or ThreadedWriter(self.batch)

    def run(self, progress: Callable[[int], None]) -> ClipResult:
        """Predict the clip; `progress` is called with numbers of frames that are done."""
        remove_leftovers(self.folder)
        self.known = {i: row for i, row in self.journal.read(self.made_of).items() if self._is_done(i, row)}
        rows = dict(self.known)
        cropped = self.view == "auto" and self.predictor.network.crops
        view = self.clip.find_view(ClipView(None, origin="cropped by the model") if cropped else self.view)
        if self.clip.file is not None and (problem := view.problem(*self.clip.file.size)):
            raise UserError(f"{self.clip.path}: {problem}.")  # before the whole file is decoded
        writer = self.writer
        with (
            closing(self.journal),
            writer.session(),
            closing(prefetch(self._groups(view), depth=2)) as groups,
            closing(prefetch(self._predicted(groups, view, writer), depth=2)) as batches,
            closing(writer.write(self.plan, batches)) as written,
        ):
            waiting: list[Row] = []
            for frames in written:
                for frame in frames:
                    index = frame.frame.index
                    if index not in self.known:
                        rows[index] = self._row(frame)
                        waiting.append(rows[index])
                    progress(1)
                if self.journal.is_open:  # opened with the first usable frame
                    self.journal.add(waiting)
                    waiting = []
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
        return ClipResult(predicted, len(self.known), problems, str(view))

    def _is_done(self, index: int, row: Row) -> bool:
        """True if a frame of the journal need not be predicted again."""
        # Smoothing cannot begin in the middle, and a video cannot be continued.
        if not self.plan.masks or self.settings.smooth or row["problem"]:
            return False
        name = self.clip.frame_name(index)
        return self.plan.mask_path(name).exists() and (not self.plan.pictures or self.plan.picture_path(name).exists())

    def _is_new(self, frame: ClipFrame) -> bool:
        return frame.pixels is not None and frame.index not in self.known

    def _groups(self, view: ClipView) -> Iterator[list[ClipFrame]]:
        """Group neighbouring frames of one kind in batches: new ones of one size, or those without a prediction."""

        def kind(frame: ClipFrame) -> tuple[bool, tuple[int, int] | None, YuvToRgb | None]:
            return self._is_new(frame), frame.size, frame.colours

        together = min(FRAMES_TOGETHER, self.batch)
        frames = self.clip.frames(self.indices, together, planes=self.predictor.gpu is not None)
        for _, alike in groupby((self._checked(frame, view) for frame in frames), kind):
            while group := list(islice(alike, self.batch)):
                yield group

    def _checked(self, frame: ClipFrame, view: ClipView) -> ClipFrame:
        """Return the frame without its pixels if its size is wrong."""
        if frame.size is None:
            return frame
        height, width = frame.size
        problem = view.problem(width, height)
        if self.clip.file is not None and (width, height) != self.clip.file.size:
            expected = "×".join(map(str, self.clip.file.size))
            problem = f"{width}×{height} pixels, expected {expected} as the first frame of its video"
        return ClipFrame(frame.index, frame.name, frame.time, None, f"{frame.name}: {problem}.") if problem else frame

    def _predicted(self, groups: Iterator[list[ClipFrame]], view: ClipView, writer: Writer) -> Iterator[PredictedBatch]:
        smoother = Smoother(self.settings.smooth) if self.settings.smooth else None
        # Batches of one length are one graph on a GPU; but smoothing must not see repeated frames.
        length = 0 if smoother else self.batch
        style = self.settings.style if self.plan.overlay_video and not self.settings.style.side_by_side else None

        def with_memory() -> Iterator[tuple[list[ClipFrame], SharedBatch | None]]:
            # In order: a batch must not wait for the memory of later batches, or it waits forever.
            for frames in groups:
                usable = frames[0].pixels is not None
                if usable and not self.journal.is_open:  # before anything else is written into the folder
                    self.journal.begin(self.made_of, list(self.known.values()))
                yield frames, writer.allocate() if usable else None

        def prepare(
            item: tuple[list[ClipFrame], SharedBatch | None],
        ) -> tuple[list[ClipFrame], SharedBatch | None, PreparedBatch | None]:
            frames, memory = item
            pixels: list[Any] = [frame.pixels for frame in frames]
            if self._is_new(frames[0]):
                return frames, memory, self.predictor.prepare(pixels, view.of(frames[0].size or ()), length, memory)
            if memory is not None:
                fill_batch(memory.pixels.shaped((len(pixels), *pixels[0].shape)), pixels)
            return frames, memory, None

        def begin(
            frames: list[ClipFrame], memory: SharedBatch | None, prepared: PreparedBatch | None
        ) -> PredictedBatch:
            pending = prepared and self.predictor.begin(prepared, smoother, style)
            return PredictedBatch(frames, pending, memory)

        if self.predictor.runs_parallel and smoother is None:
            yield from map_ordered(lambda item: begin(*prepare(item)), with_memory(), cores())
        else:
            with closing(map_ordered(prepare, with_memory(), PREPARE_THREADS)) as prepared:
                yield from starmap(begin, prepared)

    def _row(self, written: WrittenFrame) -> Row:
        """Row of a frame in journal and table."""
        frame = written.frame
        row: Row = {"frame": frame.index, "name": frame.name, "problem": frame.problem}
        if frame.time is not None:
            row["time"] = frame.time
        if written.certainty is not None and written.pixels is not None:
            row["confidence"], row["entropy"] = map(finite, written.certainty)
            row["flow_agreement"] = written.flow_agreement
            row |= class_areas(written.pixels, self.predictor.classes)
        return row

    def _problems(self, rows: list[Row]) -> list[str]:
        problems = [row["problem"] for row in rows if row["problem"]]
        if self.clip.file is not None and (missing := self.clip.file.missing):
            problems.append(
                f"{self.clip.path.name} stops after {len(rows):,} frames, about {missing:,} before its end: the file "
                "is cut off; all existing frames were predicted."
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
