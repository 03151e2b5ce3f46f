"""Shapes that an annotation tool has drawn on images: polygons and run lengths, each with a label."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as coco
from pydantic import BaseModel, ValidationError

from suture.core.errors import UserError
from suture.core.text import reason
from suture.data.classes import UNPAINTED, Raw, UnknownValues
from suture.data.dataset import Boxes
from suture.data.images import MAX_PIXELS

Shape = tuple[str, Any]
"""A label and COCO's `segmentation`: a list of polygons, or run lengths."""
_LINE = 4
"""The numbers of a polygon of two corners."""


class _Undrawable(ValueError):
    """What is wrong with a shape, in words for the user."""


def read_json(where: str, content: bytes, form: type[BaseModel], tool: str, mend: str) -> Any:
    """What a tool's JSON file holds, as it stands there; one that has not the tool's form is a `UserError`."""
    try:
        data = json.loads(content)
        form.model_validate(data)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UserError(f"{where} is not valid JSON ({place}): it is damaged or cut off; {mend}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not valid JSON (it is not UTF-8): {mend}.") from error
    except RecursionError as error:
        raise UserError(f"{where} is not {tool} (too many brackets within each other): {mend}.") from error
    except ValidationError as error:
        mistake = error.errors()[0]
        key = ".".join(map(str, mistake["loc"]))
        raise UserError(f"{where} is not {tool} ({key}{': ' if key else ''}{reason(mistake)}): {mend}.") from error
    except ValueError as error:
        raise UserError(f"{where} is not {tool} (it holds a number of thousands of digits): {mend}.") from error
    return data


def is_absurd(width: int, height: int) -> bool:
    """Whether no image has that size, so that none may be made of it."""
    return min(width, height) < 1 or width * height > MAX_PIXELS


def has_area(segmentation: Any) -> bool:
    """Whether an annotation is a shape, however it is drawn: tools write [] or [[]] for a box, two corners for a line.

    >>> has_area([[0, 0, 4, 0, 4, 4]]), has_area([[0, 0, 4, 4]]), has_area([[]]), has_area(None)
    (True, False, False, False)
    >>> has_area([[[0, 0], [4, 0], [4, 4]]])
    True
    """
    if isinstance(segmentation, list):
        return not all(map(_is_line, segmentation))
    return bool(segmentation)


def _is_line(polygon: Any) -> bool:
    """Whether a polygon covers nothing; one of pairs of numbers is no line, however few, but cannot be drawn."""
    return isinstance(polygon, list) and len(polygon) <= _LINE and not any(isinstance(one, list) for one in polygon)


@dataclass(frozen=True, slots=True)
class DrawnImage:
    """What is drawn on an image of this size."""

    width: int
    height: int
    shapes: Sequence[Shape]


@dataclass(frozen=True)
class ShapeExport:
    """The images of one or several files that have shapes."""

    path: Path
    labels: Mapping[str, Raw]
    images: Mapping[str, DrawnImage]
    notes: list[str] = field(default_factory=list)
    boxes: list[Boxes] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    """The file of each image, where each has one of its own."""

    @property
    def frames(self) -> list[str]:
        return list(self.images)

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> "ShapeMask":
        return ShapeMask(self.files.get(frame, f"{self.path}: {frame}"), self.images[frame], label_ids, annotated)


@dataclass(frozen=True, slots=True)
class ShapeMask:
    """The shapes of one image; later ones lie on top of earlier ones, as they do in the tools."""

    name: str
    image: DrawnImage
    label_ids: Mapping[str, int]
    annotated: tuple[str, ...] | None = None

    def read(self, by_color: bool) -> np.ndarray:
        """The labels as the class table's ids, H W, whatever `by_color` says: there are no colours here."""
        return self.examine(by_color)[0]

    def examine(self, by_color: bool) -> tuple[np.ndarray, int]:
        """What `read` gives, and how many shapes have none of their pixels left in it."""
        ids = np.full((self.image.height, self.image.width), UNPAINTED, np.int32, order="F")  # as shapes are drawn
        covered = 0
        unknown: dict[Raw, int] = {}
        # From the top down: what a shape finds painted stays so, hence each is drawn once.
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
        return cv2.transpose(ids.T), covered  # in the usual order, ten times faster than numpy brings it there

    def size(self) -> tuple[int, int]:
        return self.image.width, self.image.height

    def content(self) -> bytes:
        return json.dumps([self.image.width, self.image.height, list(self.image.shapes)], sort_keys=True).encode()

    def _draw(self, segmentation: Any) -> np.ndarray:
        height, width = self.image.height, self.image.width
        try:
            if isinstance(segmentation, dict):
                return _draw_runs(segmentation, height, width)
            return _draw_polygons(segmentation, height, width)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            why = str(error) if isinstance(error, _Undrawable) else "it is neither polygons nor run lengths"
            raise UserError(f"{self.name} has a shape that cannot be drawn ({why}): export it again.") from error


def _draw_polygons(polygons: list[list[float]], height: int, width: int) -> np.ndarray:
    for polygon in polygons:
        # Drawing takes time by the length of the outline: a corner a million pixels away would never end.
        most = 2 * max(height, width)
        if not all(math.isfinite(number) and -most <= number <= most for number in polygon) or len(polygon) % 2:
            raise _Undrawable("a polygon is x, y, x, y, … within the image")
    drawable = [polygon for polygon in polygons if len(polygon) > _LINE]
    return coco.decode(coco.merge(coco.frPyObjects(drawable, height, width))).astype(bool)


def _draw_runs(segmentation: dict[str, Any], height: int, width: int) -> np.ndarray:
    """Draw run lengths. pycocotools leaves the rest unset where they are too short, so it is not asked."""
    counts = segmentation["counts"]
    runs = np.array(_unpack_runs(counts) if isinstance(counts, str) else counts, np.int64)
    if list(segmentation["size"]) != [height, width]:
        raise _Undrawable(f"run lengths for {segmentation['size']} in an image of {[height, width]}")
    if runs.ndim != 1 or (runs < 0).any() or runs.sum() != height * width:
        raise _Undrawable("run lengths that do not fill the image")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def _unpack_runs(text: str) -> list[int]:
    """COCO's packed run lengths: five bits a character, low ones first; from the fourth on, differences to the last but
    one."""
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
