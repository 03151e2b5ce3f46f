"""What is written of a clip: masks, overlay and table, each whole or not there."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TextIO

import av
import cv2
import numpy as np
from PIL import Image

from suture.data.classes import IGNORE, ClassTable
from suture.errors import UserError
from suture.files import replacing

Masks = Literal["png", "video", "none"]
Table = Literal["csv", "parquet", "none"]
TICK = Fraction(1, 90_000)
"""The clock of written videos: MPEG's own, which frame rates and milliseconds divide."""
_BT601 = 6  # the matrix that OpenCV converts to yuv420 by, named as FFmpeg names it
_LIMITED, _FULL = 1, 2


def write_mask(path: Path, mask: np.ndarray, classes: ClassTable) -> None:
    """A palette PNG: its values are the class ids, and viewers show the classes' colours."""
    image = Image.fromarray(mask)
    image.putpalette(classes.paint(np.arange(256, dtype=np.uint8)).tobytes())
    with replacing(path) as temporary:
        image.save(temporary, compress_level=1)  # four times the speed of the usual 6, for half as much again


def read_written_mask(path: Path) -> np.ndarray | None:
    """A mask that `write_mask` wrote; None where there is none."""
    try:
        with Image.open(path) as image:
            return np.asarray(image) if image.mode == "P" else None
    except (OSError, ValueError, SyntaxError):
        return None


def write_picture(path: Path, pixels: np.ndarray) -> None:
    """An RGB picture as JPEG."""
    with replacing(path) as temporary:
        if not cv2.imwrite(str(temporary), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 92]):
            raise UserError(f"{path} cannot be written: is the disk full?")


def to_yuv(pixels: np.ndarray) -> np.ndarray:
    """RGB as planes of yuv420; an odd side is continued by one pixel, as the format needs even ones."""
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = cv2.copyMakeBorder(pixels, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420)


class VideoWriter:
    """One video stream, written frame by frame with the times that the frames had in the original."""

    def __init__(self, path: Path, codec: Literal["libx264", "ffv1"], fps: float) -> None:
        self.codec = codec
        self._container = av.open(str(path), "w", options={"fflags": "+bitexact"})  # no random ids, no dates
        rate = Fraction(min(max(fps, 1), 1000)).limit_denominator(1001)
        options = {"crf": "20", "preset": "veryfast"} if codec == "libx264" else {"level": "3", "slicecrc": "1"}
        self._stream: Any = self._container.add_stream(codec, rate=rate, options=options)
        self._stream.codec_context.time_base = TICK
        self._last = -1

    def add(self, planes: np.ndarray, seconds: float) -> None:
        """A frame: planes from `to_yuv` for H.264, a mask for FFV1."""
        gray = self.codec == "ffv1"
        frame = av.VideoFrame.from_ndarray(planes, format="gray" if gray else "yuv420p")
        if self._last < 0:
            context = self._stream.codec_context
            self._stream.width, self._stream.height, self._stream.pix_fmt = frame.width, frame.height, frame.format.name
            context.color_range = _FULL if gray else _LIMITED
            if not gray:
                context.colorspace = _BT601
            context.thread_count = 0
        frame.color_range = _FULL if gray else _LIMITED
        # Time goes forward even where a damaged file's does not.
        self._last = max(round(Fraction(seconds) / TICK), self._last + 1)
        frame.pts, frame.time_base = self._last, TICK
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        if self._last >= 0:
            self._container.mux(self._stream.encode(None))
        self._container.close()


@contextmanager
def video_writer(path: Path, codec: Literal["libx264", "ffv1"], fps: float) -> Iterator[VideoWriter]:
    """A video that appears under its name once it is whole."""
    with replacing(path) as temporary:
        writer = VideoWriter(temporary, codec, fps)
        try:
            yield writer
        finally:
            writer.close()


def table_columns(classes: ClassTable) -> list[str]:
    """Of the table of a clip: one row for each frame."""
    areas = [f"area {name}" for name in classes.names]
    return ["frame", "name", "time", "confidence", "entropy", "flow_agreement", *areas, "problem"]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """The table as CSV or Parquet, by the path's suffix; what is not known is empty."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        kinds = {"frame": pyarrow.int64(), "name": pyarrow.string(), "problem": pyarrow.string()}
        schema = pyarrow.schema([(column, kinds.get(column, pyarrow.float64())) for column in columns])
        table = pyarrow.Table.from_pylist([{c: row.get(c) for c in columns} for row in rows], schema)
        with replacing(path) as temporary:
            pyarrow.parquet.write_table(table, temporary)
        return
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def areas(mask: np.ndarray, classes: ClassTable) -> dict[str, float | None]:
    """The share of each class in the pixels inside the view."""
    counts = cv2.calcHist([mask], [0], None, [256], [0, 256]).ravel()
    inside = float(counts.sum() - counts[IGNORE])
    return {f"area {name}": float(counts[i]) / inside if inside else None for i, name in enumerate(classes.names)}


def number(value: float) -> float | None:
    """A number for JSON and tables, which have no NaN."""
    return None if math.isnan(value) else round(value, 6)


class Journal:
    """The rows of the frames that are done, in a file that survives a kill: line by line, the last may be torn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def made_of(self) -> Any:
        """The settings it was begun with; None where there is no journal."""
        return next(self._lines(), None)

    def read(self, made_of: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Rows by frame; none where there is no journal, or one of other settings."""
        lines = self._lines()
        return {row["frame"]: row for row in lines} if next(lines, None) == made_of else {}

    def _lines(self) -> Iterator[Any]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return

    def begin(self, made_of: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Start writing, with the rows that are known already."""
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in [made_of, *rows]), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")

    def add(self, row: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
