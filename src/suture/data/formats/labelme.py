"""LabelMe JSON: one file for each frame, named after it, with polygons, circles and brushed masks."""

import base64
import io
import math
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, StrictFloat, StrictStr

from suture.core.errors import UserError
from suture.core.text import listed, number
from suture.data.dataset import Boxes
from suture.data.formats.shapes import DrawnImage, Shape, ShapeExport, has_area, is_absurd, read_json
from suture.data.images import open_image, raw_mask

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


class LabelMeFile(NamedTuple):
    """What LabelMe has saved about one frame."""

    name: str
    drawn: DrawnImage
    without: int
    """Annotations that are no shapes: boxes, lines, points."""
    image: str
    """The name of the image that it says it is of."""


class _Entry(BaseModel):
    points: list[tuple[StrictFloat, StrictFloat]]
    shape_type: StrictStr | None = None
    mask: StrictStr | None = None


class _Content(BaseModel):
    """What is read of a file; labels are looked at where there is a shape."""

    width: int = Field(alias="imageWidth")
    height: int = Field(alias="imageHeight")
    shapes: list[_Entry]


def labelme_export(path: Path, files: Mapping[str, LabelMeFile], waiting: Sequence[str] = ()) -> ShapeExport:
    """The files of a folder or a zip, by the names of their frames, as one export.

    `waiting` are copies of frames that lie among those that were labelled.
    """
    drawn = {frame: file.drawn for frame, file in files.items() if file.drawn.shapes}
    shapes = [shape for image in drawn.values() for shape in image.shapes]
    notes = []
    if empty := len(files) - len(drawn):
        of_all = f"{path.name}: of {number(len(files), 'LabelMe file')}, {empty:,} without any shape"
        notes.append(f"{of_all}: taken as not labelled.")
    if waiting:
        which = f"{number(len(waiting), 'colour image')} without a LabelMe file, beside such that have one"
        what = "taken as frames that are not labelled yet; put masks into a folder without LabelMe files"
        notes.append(f"{path.name}: {which} ({listed(waiting, _SOME)}): {what}.")
    others = [
        f"{frame}.json: {file.image}"
        for frame, file in files.items()
        if file.image and posixpath.splitext(file.image)[0] != posixpath.basename(frame)
    ]
    if others:
        which = f"{number(len(others), 'LabelMe file')} whose imagePath is another image ({listed(others, _SOME)})"
        notes.append(f"{path.name}: {which}: taken as of the frame that each is named after; rename what is wrong.")
    names = {frame: file.name for frame, file in files.items()}
    boxed = {frame: file.without for frame, file in files.items() if file.without}
    where = str(path) if str(path) in names.values() else f"{path} (such as {next(iter(boxed), '')}.json)"
    boxes = [Boxes(where, sum(boxed.values()), len(shapes))] if boxed else []
    return ShapeExport(path, {label: label for label, _ in shapes}, drawn, notes, boxes, names)


def read_labelme(where: str, content: bytes) -> LabelMeFile:
    """Read one file; `where` is its name for messages."""
    data = read_json(where, content, _Content, "LabelMe's", _AGAIN)
    try:
        width, height = int(data["imageWidth"]), int(data["imageHeight"])
        if is_absurd(width, height):
            raise ValueError(f"an image of {width}×{height} is absurd")
        shapes: list[Shape] = []
        for entry in data["shapes"]:
            kind = entry.get("shape_type") or "polygon"  # older files do not say it
            draw = {"polygon": _polygon, "circle": _circle, "mask": _brushed}.get(kind)
            segmentation = draw(entry, width, height) if draw else None
            if has_area(segmentation):
                if entry.get("label") is None:
                    raise ValueError("a shape without a label")
                shapes.append((str(entry["label"]), segmentation))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except ValueError as error:
        raise UserError(f"{where} is not LabelMe's ({error}): {_AGAIN}.") from error
    image = posixpath.basename(str(data.get("imagePath") or "").replace("\\", "/"))
    return LabelMeFile(where, DrawnImage(width, height, shapes), len(data["shapes"]) - len(shapes), image)


def _polygon(entry: dict[str, Any], width: int, height: int) -> list[list[float]]:
    return [[number for point in entry["points"] for number in point]]


def _circle(entry: dict[str, Any], width: int, height: int) -> list[list[float]]:
    """A centre and a point of the rim, as a polygon."""
    if len(entry["points"]) != 2:
        raise ValueError(f"a circle of {number(len(entry['points']), 'point')}, expected its centre and one of its rim")
    (x, y), rim = entry["points"]
    radius = math.dist((x, y), rim)
    angles = (2 * math.pi * corner / _CORNERS for corner in range(_CORNERS))
    return [[number for angle in angles for number in (x + radius * math.cos(angle), y + radius * math.sin(angle))]]


def _brushed(entry: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    """A small image and the corner where it lies, as COCO's run lengths."""
    name = "a brushed mask"
    if not entry.get("mask") or not entry["points"] or not all(map(math.isfinite, entry["points"][0])):
        raise ValueError(f"{name} without its image or its place")
    try:
        content = base64.b64decode(entry["mask"])
    except ValueError:
        raise ValueError(f"{name} whose image is cut off") from None
    with open_image(io.BytesIO(content), name) as image:
        brushed = raw_mask(image, by_color=False, name=name) > 0
    left, top = map(round, entry["points"][0])
    if left < 0 or top < 0 or top + brushed.shape[0] > height or left + brushed.shape[1] > width:
        raise ValueError(f"a mask of {brushed.shape[1]}×{brushed.shape[0]} at {left}, {top} in {width}×{height}")
    whole = np.zeros((height, width), bool)
    whole[top : top + brushed.shape[0], left : left + brushed.shape[1]] = brushed
    edges = np.flatnonzero(np.diff(whole.T.ravel(), prepend=False))
    return {"size": [height, width], "counts": np.diff([0, *edges.tolist(), whole.size]).tolist()}
