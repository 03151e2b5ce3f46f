"""What is written of a clip: masks, overlay and table, each whole or not there."""

import csv
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_H264 = {"qp": "25", "preset": "ultrafast"}
"""Encoding must not hold back what predicts: a quarter of the work of `veryfast` at crf 20 at about the same
signal-to-noise ratio, for up to twice the bytes. To spend the same on each frame spares a third of what crf takes."""


def write_mask(path: Path, mask: np.ndarray, classes: ClassTable) -> None:
    """A palette PNG: its values are the class ids, and viewers show the classes' colours."""
    # Put together here: Pillow holds Python's lock for a third of a millisecond per file, which all threads wait for.
    height, width = mask.shape
    rows = np.empty((height, width + 1), np.uint8)
    rows[:, 0], rows[:, 1:] = 0, mask  # each begins with the number of its filter: none
    # Masks are runs: to look for nothing else is faster than usual, and smaller too; so is a small memory for matches.
    packer = zlib.compressobj(level=1, memLevel=6, strategy=zlib.Z_RLE)
    chunks = (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0)),  # 8 bits, with a palette
        (b"PLTE", classes.palette.tobytes()),
        (b"IDAT", packer.compress(rows.data) + packer.flush()),
        (b"IEND", b""),
    )
    parts = [(struct.pack(">I", len(data)), name + data) for name, data in chunks]
    png = b"".join(length + body + struct.pack(">I", zlib.crc32(body)) for length, body in parts)
    with replacing(path) as temporary:
        temporary.write_bytes(b"\x89PNG\r\n\x1a\n" + png)


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
        options = _H264 if codec == "libx264" else {"level": "3", "slicecrc": "1"}
        self._stream: Any = self._container.add_stream(codec, rate=rate, options=options)
        self._stream.codec_context.time_base = TICK
        self._last = -1

    def add(self, frame: av.VideoFrame, seconds: float) -> None:
        """A frame: of kind yuv420p for H.264, gray for FFV1."""
        gray = self.codec == "ffv1"
        if self._last < 0:
            context = self._stream.codec_context
            self._stream.width, self._stream.height, self._stream.pix_fmt = frame.width, frame.height, frame.format.name
            context.color_range = _FULL if gray else _LIMITED
            if not gray:
                context.colorspace = _BT601
            context.thread_count, context.thread_type = 0, "AUTO"  # H.264 frame by frame: by slices, cores wait
        frame.color_range = _FULL if gray else _LIMITED
        # Time goes forward even where a damaged file's does not.
        self._last = max(round(seconds / TICK), self._last + 1)
        frame.pts, frame.time_base = self._last, TICK
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        if self._last >= 0:
            self._container.mux(self._stream.encode(None))
        self._container.close()


def video_frame(planes: np.ndarray, kind: Literal["gray", "yuv420p"]) -> av.VideoFrame:
    """A frame for a `VideoWriter`: of a mask, or of planes from `to_yuv`."""
    rows, width = planes.shape
    if kind == "yuv420p" and rows % 6 == 0 and planes.flags.c_contiguous:
        return av.VideoFrame.from_numpy_buffer(planes, kind)  # where they are; other heights it would cut off
    # PyAV's copies go line by line, and hold Python's lock meanwhile.
    frame = av.VideoFrame(width, rows if kind == "gray" else rows * 2 // 3, kind)
    targets: Any = frame.planes
    start = 0
    for plane in targets:
        end = start + plane.height * plane.width
        target = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        target[:, : plane.width] = planes.reshape(-1)[start:end].reshape(plane.height, plane.width)
        start = end
    return frame


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


def count_pixels(mask: np.ndarray) -> np.ndarray:
    """How many each class has, by id; those that are ignored are left out."""
    return cv2.calcHist([mask], [0], None, [IGNORE], [0, IGNORE]).ravel().astype(np.int64)


def areas(pixels: np.ndarray, classes: ClassTable) -> dict[str, float | None]:
    """The share of each class in all pixels inside the view, of how many each has."""
    inside = int(pixels.sum())
    return {f"area {name}": int(pixels[i]) / inside if inside else None for i, name in enumerate(classes.names)}


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

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        assert self._file is not None
        self._file.write("".join(json.dumps(row) + "\n" for row in rows))
        self._file.flush()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
