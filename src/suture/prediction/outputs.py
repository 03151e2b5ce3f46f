"""What is written of a clip besides videos: masks, pictures and table, each whole or not there."""

import csv
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

import cv2
import numpy as np
from PIL import Image

from suture.core.io import replacing
from suture.data.classes import IGNORE, ClassTable

Masks = Literal["png", "video", "none"]
Table = Literal["csv", "parquet", "none"]


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
    # Not imwrite, which does not say why it cannot write.
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 92])
    with replacing(path) as temporary:
        temporary.write_bytes(data.tobytes())


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
    """Six digits of what is less than 1; a time of hours has as many after the point."""
    return f"{value:.{6 if value < 1 else 12}g}" if isinstance(value, float) else value


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
