"""LabelMe JSON: one file for each frame, named after it, with polygons, circles and brushed masks."""

import base64
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from suture.data.dataset import Boxes
from suture.data.exports.shapes import DrawnImage, Shape, ShapeExport
from suture.data.images import MAX_PIXELS, open_image, raw_mask
from suture.errors import UserError
from suture.words import number

_AGAIN = "open the frame in LabelMe and save it again"
_CORNERS = 128
"""Of the polygon that stands for a circle."""


def is_labelme(content: bytes) -> bool:
    """Whether a JSON file looks like LabelMe's; it is not parsed, since it may hold the whole frame as text."""
    return b'"shapes"' in content and b'"images"' not in content


def read_labelme(path: Path, files: Iterable[tuple[str, str, bytes]]) -> ShapeExport:
    """Read which frames have shapes; `files` are frames, names for messages, and contents."""
    images: dict[str, DrawnImage] = {}
    without = count = 0
    for frame, name, content in files:
        images[frame], left_out = _parse(name, content)
        without += left_out
        count += 1
    drawn = {frame: image for frame, image in images.items() if image.shapes}
    shapes = [shape for image in drawn.values() for shape in image.shapes]
    empty = f"{path.name}: of {number(count, 'LabelMe file')}, {count - len(drawn):,} without any shape"
    notes = [f"{empty}: taken as not labelled."] if len(drawn) < count else []
    boxes = [Boxes(str(path), without, len(shapes))] if without else []
    return ShapeExport(path, {label: label for label, _ in shapes}, drawn, notes, boxes)


def _parse(where: str, content: bytes) -> tuple[DrawnImage, int]:
    """What is drawn on the frame, and how many annotations have no shape: boxes, lines, points."""
    try:
        data = json.loads(content)
        width, height = int(data["imageWidth"]), int(data["imageHeight"])
        if min(width, height) < 1 or width * height > MAX_PIXELS:
            raise ValueError(f"an image of {width}×{height} is absurd")
        shapes: list[Shape] = []
        for entry in data["shapes"]:
            kind = entry.get("shape_type") or "polygon"  # older files do not say it
            draw = {"polygon": _polygon, "circle": _circle, "mask": _brushed}.get(kind)
            if draw is not None:
                shapes.append((str(entry["label"]), draw(entry, width, height)))
        return DrawnImage(width, height, shapes), len(data["shapes"]) - len(shapes)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{where} is not valid JSON ({error}): {_AGAIN}.") from error
    except KeyError as error:
        raise UserError(f"{where} is not LabelMe's: {error} is missing; {_AGAIN}.") from error
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{where} is not LabelMe's ({error}): {_AGAIN}.") from error


def _polygon(entry: dict[str, Any], width: int, height: int) -> list[list[float]]:
    return [[number for point in entry["points"] for number in point]]


def _circle(entry: dict[str, Any], width: int, height: int) -> list[list[float]]:
    """A centre and a point of the rim, as a polygon."""
    (x, y), rim = entry["points"]
    radius = math.dist((x, y), rim)
    angles = (2 * math.pi * corner / _CORNERS for corner in range(_CORNERS))
    return [[number for angle in angles for number in (x + radius * math.cos(angle), y + radius * math.sin(angle))]]


def _brushed(entry: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    """A small image and the corner where it lies, as COCO's run lengths."""
    name = "a brushed mask"
    with open_image(io.BytesIO(base64.b64decode(entry["mask"])), name) as image:
        brushed = raw_mask(image, by_color=False, name=name) > 0
    left, top = (round(number) for number in entry["points"][0])
    if left < 0 or top < 0 or top + brushed.shape[0] > height or left + brushed.shape[1] > width:
        raise ValueError(f"a mask of {brushed.shape[1]}×{brushed.shape[0]} at {left}, {top} in {width}×{height}")
    whole = np.zeros((height, width), bool)
    whole[top : top + brushed.shape[0], left : left + brushed.shape[1]] = brushed
    edges = np.flatnonzero(np.diff(whole.T.ravel(), prepend=False))
    return {"size": [height, width], "counts": np.diff([0, *edges.tolist(), whole.size]).tolist()}
