"""The table of a clip: one row per frame."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from suture.core.io import replacing
from suture.data.classes import IGNORE, ClassTable

TableFormat = Literal["csv", "parquet", "none"]


def table_columns(classes: ClassTable) -> list[str]:
    """Columns of the table."""
    areas = [f"area {name}" for name in classes.names]
    return ["frame", "name", "time", "confidence", "entropy", "flow_agreement", *areas, "problem"]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write rows as CSV or Parquet, by the path's suffix; missing values stay empty."""
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
    """Six digits; a time of hours has as many after the point."""
    return f"{value:.{6 if value < 1 else 12}g}" if isinstance(value, float) else value


def count_pixels(mask: np.ndarray) -> np.ndarray:
    """Pixels of each class id in a mask; ignored pixels are left out."""
    return cv2.calcHist([mask], [0], None, [IGNORE], [0, IGNORE]).ravel().astype(np.int64)


def class_areas(pixels: np.ndarray, classes: ClassTable) -> dict[str, float | None]:
    """Share of each class in the pixels inside the view, from the pixels of each class."""
    inside = int(pixels.sum())
    return {f"area {name}": int(pixels[i]) / inside if inside else None for i, name in enumerate(classes.names)}


def finite(value: float) -> float | None:
    """Round a number for JSON and tables, which have no NaN."""
    return None if math.isnan(value) else round(value, 6)
