"""Shapes of annotation tools: polygons, run lengths and brushed masks, each with a label, as masks."""

import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import cv2
import numpy as np
from pycocotools import mask as coco
from pydantic import BaseModel, ValidationError

from suture.core.errors import UserError
from suture.core.io import parse_json
from suture.core.text import number, reason
from suture.data.classes import UNPAINTED, Raw, UnknownValues
from suture.data.dataset import Boxes
from suture.data.formats.brush import decode_brush
from suture.data.formats.export import Export
from suture.data.images import MAX_PIXELS

Shape = tuple[str, Any]
"""A label and COCO's `segmentation`: a list of polygons, or run lengths; or a crop's `box` and `counts`, or `brush`."""
ELLIPSE_CORNERS = 128
_LINE_NUMBERS = 4
"""Length of a polygon of two corners."""


def read_json(where: str, content: bytes, form: type[BaseModel], tool: str) -> Any:
    """Read a tool's JSON file and validate its form; `where` is its name for messages."""
    data = parse_json(content, where)
    try:
        form.model_validate(data)
    except ValidationError as error:
        mistake = error.errors()[0]
        key = ".".join(map(str, mistake["loc"]))
        why = f"{key}{': ' if key else ''}{reason(mistake)}"
        raise UserError(f"{where} is not a {tool} file ({why}): export it again.") from error
    return data


def validate_size(where: str, width: Any, height: Any) -> tuple[int, int]:
    """Raise if no image has this size, so that no memory is allocated for it."""
    width, height = int(width), int(height)
    if min(width, height) < 1 or width * height > MAX_PIXELS:
        raise UserError(f"{where} is an image of {width}×{height} pixels, which is impossible: export it again.")
    return width, height


def empty_note(path: Path, listed: int, drawn: int) -> list[str]:
    """A note on images without any shape, if there are any."""
    note = f"{path.name}: of {number(listed, 'image')}, {listed - drawn:,} without any shape: taken as not labelled."
    return [note] if drawn < listed else []


def frame_of(name: str) -> str:
    """Name of the frame by the file of its image: a path without suffix, also of Label Studio's local storage."""
    _, address, path = name.partition("/local-files/?d=")
    return posixpath.splitext(posixpath.normpath((unquote(path) if address else name).replace("\\", "/")))[0]


def run_lengths(pixels: np.ndarray) -> list[int]:
    """Lengths of the runs of a flat boolean mask; the first run is of False, so it may be 0.

    >>> run_lengths(np.array([True, True, False]))
    [0, 2, 1]
    """
    edges = np.flatnonzero(np.diff(pixels, prepend=False))
    return np.diff(edges, prepend=0, append=pixels.size).tolist()


def crop_shape(inside: np.ndarray, left: int, top: int) -> dict[str, Any]:
    """Shape of a small mask at a place in the image, as run lengths along its rows."""
    return {"box": [left, top, inside.shape[1], inside.shape[0]], "counts": run_lengths(inside.ravel())}


def ellipse(x: float, y: float, rx: float, ry: float, degrees: float = 0.0) -> list[list[float]]:
    """Polygon of an ellipse around (x, y), turned clockwise."""
    angles = np.linspace(0, 2 * np.pi, ELLIPSE_CORNERS, endpoint=False)
    turn = np.exp(1j * np.radians(degrees))
    corners = complex(x, y) + (rx * np.cos(angles) + 1j * ry * np.sin(angles)) * turn
    return [np.stack([corners.real, corners.imag], 1).ravel().tolist()]


def has_area(segmentation: Any) -> bool:
    """Test whether an annotation covers pixels: tools write [] or [[]] for a box, two corners for a line.

    >>> has_area([[0, 0, 4, 0, 4, 4]]), has_area([[0, 0, 4, 4]]), has_area([[]]), has_area(None)
    (True, False, False, False)
    >>> has_area([[[0, 0], [4, 0], [4, 4]]])
    True
    """
    if isinstance(segmentation, list):
        return not all(map(_is_line, segmentation))
    return bool(segmentation)


def _is_line(polygon: Any) -> bool:
    """Test whether a polygon covers nothing; one of pairs of numbers is no line but an error."""
    flat = isinstance(polygon, list) and not any(isinstance(one, list) for one in polygon)
    return flat and len(polygon) <= _LINE_NUMBERS


@dataclass(frozen=True, slots=True)
class DrawnImage:
    """The shapes on one image, and its size."""

    width: int
    height: int
    shapes: Sequence[Shape]
    is_blank: bool = False
    """An annotator stated that it shows no class. Other images without shapes are not labelled."""


@dataclass(frozen=True, slots=True)
class ShapeFile:
    """The content of one file: labels, all images, and the number of annotations without a shape."""

    name: str
    labels: Mapping[str, Raw]
    images: Mapping[str, DrawnImage]
    without_shape: int
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ShapeExport(Export):
    """The images with shapes of one or several files: `members` are their `DrawnImage`."""

    files: Mapping[str, str] = field(default_factory=dict)
    """File of each image, where each has one of its own."""

    @classmethod
    def combine(cls, path: Path, files: Iterable[ShapeFile]) -> "ShapeExport":
        """Combine the files of an export."""
        export, listed = cls(path, {}, {}), 0
        labels: dict[str, Raw] = {}
        images: dict[str, DrawnImage] = {}
        for file in files:
            if twice := file.images.keys() & images.keys():
                raise UserError(f"{path} holds two images {min(twice)}: file names must differ.")
            labels |= file.labels
            images |= {frame: image for frame, image in file.images.items() if image.shapes or image.is_blank}
            listed += len(file.images)
            export.notes.extend(file.notes)
            if file.without_shape:
                shapes = sum(len(image.shapes) for image in file.images.values())
                export.boxes.append(Boxes(file.name, file.without_shape, shapes))
        export.notes.extend(empty_note(path, listed, len(images)))
        return replace(export, labels=labels, members=images)

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> "ShapeMask":
        return ShapeMask(self.files.get(frame, f"{self.path}: {frame}"), self.members[frame], label_ids, annotated)


@dataclass(frozen=True, slots=True)
class ShapeMask:
    """The shapes of one image; later ones lie on top of earlier ones, as they do in the tools."""

    name: str
    image: DrawnImage
    label_ids: Mapping[str, int]
    annotated: tuple[str, ...] | None = None

    def read(self, by_color: bool) -> np.ndarray:
        """Draw the labels as the class table's ids, H W; shapes have no colours, so `by_color` is ignored."""
        return self.examine(by_color)[0]

    def examine(self, by_color: bool) -> tuple[np.ndarray, int]:
        """Draw as `read` does, and count the shapes that others cover entirely."""
        ids = np.full((self.image.height, self.image.width), UNPAINTED, np.int32, order="F")  # as shapes are drawn
        covered = 0
        unknown: dict[Raw, int] = {}
        # From the top down: painted pixels stay, so each shape is drawn once.
        for label, segmentation in reversed(self.image.shapes):
            inside = self._draw(segmentation)
            if label in self.label_ids:
                seen = inside & (ids == UNPAINTED)
                ids[seen] = self.label_ids[label]
                covered += bool(inside.any()) and not seen.any() and self.label_ids[label] not in ids[inside]
            else:
                unknown[label] = unknown.get(label, 0) + int(inside.sum())
        if unknown:
            raise UnknownValues(unknown, f"the labels of dataset.yaml ({', '.join(self.label_ids)})")
        return cv2.transpose(ids.T), covered  # C order, ten times faster than by numpy

    def content(self) -> bytes:
        return json.dumps([self.image.width, self.image.height, list(self.image.shapes)], sort_keys=True).encode()

    def _draw(self, segmentation: Any) -> np.ndarray:
        height, width = self.image.height, self.image.width
        try:
            if isinstance(segmentation, list):
                return _draw_polygons(segmentation, height, width)
            if "brush" in segmentation:
                return decode_brush(segmentation["brush"], height, width)
            return (_draw_crop if "box" in segmentation else _draw_runs)(segmentation, height, width)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise UserError(
                f"{self.name} has a shape that cannot be drawn: expected polygons x, y, x, y, … or run lengths that "
                "fill the image; export it again."
            ) from error


def _draw_polygons(polygons: list[list[float]], height: int, width: int) -> np.ndarray:
    limit = 2 * max(height, width)  # the outline of a corner a million pixels away would never end
    for polygon in polygons:
        if not all(-limit <= value <= limit for value in polygon) or len(polygon) % 2:
            raise ValueError("corners beyond the image")
    drawable = [polygon for polygon in polygons if len(polygon) > _LINE_NUMBERS]
    return coco.decode(coco.merge(coco.frPyObjects(drawable, height, width))).astype(bool)


def _draw_runs(segmentation: dict[str, Any], height: int, width: int) -> np.ndarray:
    """Draw run lengths; pycocotools would leave pixels uninitialised where they are too short."""
    counts = segmentation["counts"]
    if list(segmentation["size"]) != [height, width]:
        raise ValueError("run lengths of another image")
    runs = _unpack_runs(counts) if isinstance(counts, str) else counts
    return _expand_runs(runs, height * width).reshape(width, height).T


def _draw_crop(segmentation: dict[str, Any], height: int, width: int) -> np.ndarray:
    """Draw the run lengths of a part of the image, along its rows."""
    left, top, columns, rows = segmentation["box"]
    whole = np.zeros((height, width), bool)
    target = whole[top : top + rows, left : left + columns]
    if min(left, top) < 0 or target.shape != (rows, columns):
        raise ValueError("a mask that leaves the image")
    target[:] = _expand_runs(segmentation["counts"], rows * columns).reshape(rows, columns)
    return whole


def _expand_runs(counts: Sequence[int], area: int) -> np.ndarray:
    runs = np.array(counts, np.int64)
    # Each run alone first, because the sum of huge ones wraps.
    if runs.ndim != 1 or not ((runs >= 0) & (runs <= area)).all() or runs.sum() != area:
        raise ValueError("run lengths that do not fill the image")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _unpack_runs(text: str) -> list[int]:
    """Unpack COCO's run lengths: five bits a character, low ones first.

    From the fourth on they are differences to the last but one.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32 and shift < 64:
            continue
        if bits & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs
