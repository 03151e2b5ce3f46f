"""LabelMe JSON: one file for each frame, named after it, with polygons, circles and brushed masks."""

import base64
import io
import json
import math
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from suture.data.dataset import Boxes
from suture.data.exports.shapes import DrawnImage, Shape, ShapeExport, has_area, is_absurd
from suture.data.images import open_image, raw_mask
from suture.errors import UserError
from suture.words import listed, number

_AGAIN = "open the frame in LabelMe and save it again"
_COCO = (b"images", b"annotations", b"categories")
_SOME = 3
"""Files that are named of many."""
_CORNERS = 128
"""Of the polygon that stands for a circle."""


def is_labelme(content: bytes) -> bool:
    """Whether a JSON file looks like LabelMe's; it is not parsed, since it may hold the whole frame as text."""
    # A label or a flag may be called images, but hardly all of what COCO needs.
    return b'"shapes"' in content and not all(b'"%b"' % key in content for key in _COCO)


def read_labelme(path: Path, files: Iterable[tuple[str, str, bytes]]) -> ShapeExport:
    """Read which frames have shapes; `files` are frames, names for messages, and contents."""
    images: dict[str, DrawnImage] = {}
    others: list[str] = []
    without = count = 0
    for frame, name, content in files:
        images[frame], left_out, said = _parse(name, content)
        without += left_out
        count += 1
        if said and posixpath.splitext(said)[0] != posixpath.basename(frame):
            others.append(f"{frame}.json: {said}")
    drawn = {frame: image for frame, image in images.items() if image.shapes}
    shapes = [shape for image in drawn.values() for shape in image.shapes]
    notes = []
    if len(drawn) < count:
        empty = f"{path.name}: of {number(count, 'LabelMe file')}, {count - len(drawn):,} without any shape"
        notes.append(f"{empty}: taken as not labelled.")
    if others:
        which = f"{number(len(others), 'LabelMe file')} whose imagePath is another image ({listed(others, _SOME)})"
        notes.append(f"{path.name}: {which}: taken as of the frame that each is named after; rename what is wrong.")
    boxes = [Boxes(str(path), without, len(shapes))] if without else []
    return ShapeExport(path, {label: label for label, _ in shapes}, drawn, notes, boxes)


def _parse(where: str, content: bytes) -> tuple[DrawnImage, int, str]:
    """What is drawn on the frame, how many annotations have no shape (boxes, lines, points), and its image's name."""
    try:
        data = json.loads(content)
        width, height = int(data["imageWidth"]), int(data["imageHeight"])
        if is_absurd(width, height):
            raise ValueError(f"an image of {width}×{height} is absurd")
        shapes: list[Shape] = []
        for entry in data["shapes"]:
            kind = entry.get("shape_type") or "polygon"  # older files do not say it
            draw = {"polygon": _polygon, "circle": _circle, "mask": _brushed}.get(kind)
            segmentation = draw(entry, width, height) if draw else None
            if has_area(segmentation):
                if entry["label"] is None:
                    raise ValueError("a shape without a label")
                shapes.append((str(entry["label"]), segmentation))
        image = posixpath.basename(str(data.get("imagePath") or "").replace("\\", "/"))
        return DrawnImage(width, height, shapes), len(data["shapes"]) - len(shapes), image
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
