"""LabelMe JSON: one file for each frame, named after it, with polygons, circles and brushed masks."""

import base64
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, StrictFloat, StrictStr

from suture.core.errors import UserError
from suture.core.text import short
from suture.data.dataset import Boxes
from suture.data.formats.shapes import (
    DrawnImage,
    Shape,
    ShapeExport,
    crop_shape,
    ellipse,
    empty_note,
    has_area,
    read_json,
    validate_size,
)
from suture.data.images import open_image, raw_mask

_COCO_KEYS = (b'"images"', b'"annotations"', b'"categories"')


def is_labelme(content: bytes) -> bool:
    """Test whether a JSON file looks like LabelMe's, without parsing it: it may hold the whole frame as text."""
    # A label or a flag may be called images, but hardly all keys of COCO.
    return b'"shapes"' in content and not all(key in content for key in _COCO_KEYS)


class LabelMeFile(NamedTuple):
    """The annotations of one frame."""

    name: str
    drawn: DrawnImage
    without_shape: int
    """Number of annotations that are no shapes: boxes, lines, points."""


class _Entry(BaseModel):
    points: list[tuple[StrictFloat, StrictFloat]]
    shape_type: StrictStr | None = None
    mask: StrictStr | None = None


class _Content(BaseModel):
    """Required content of a file; labels are required where there is a shape."""

    width: int = Field(alias="imageWidth")
    height: int = Field(alias="imageHeight")
    shapes: list[_Entry]


def labelme_export(path: Path, files: Mapping[str, LabelMeFile]) -> ShapeExport:
    """Combine the files of a folder or a zip, by the names of their frames."""
    drawn = {frame: file.drawn for frame, file in files.items() if file.drawn.shapes}
    shapes = [shape for image in drawn.values() for shape in image.shapes]
    notes = empty_note(path, len(files), len(drawn))
    without_shape = sum(file.without_shape for file in files.values())
    boxes = [Boxes(str(path), without_shape, len(shapes))] if without_shape else []
    names = {frame: file.name for frame, file in files.items()}
    return ShapeExport(path, {label: label for label, _ in shapes}, drawn, notes, boxes, names)


def read_labelme(where: str, content: bytes) -> LabelMeFile:
    """Read one file; `where` is its name for messages."""
    data = read_json(where, content, _Content, "LabelMe")
    width, height = validate_size(where, data["imageWidth"], data["imageHeight"])
    shapes: list[Shape] = []
    for entry in data["shapes"]:
        try:
            segmentation = _segmentation(entry, width, height)
            if has_area(segmentation):
                if entry["label"] is None:
                    raise ValueError("no label")
                shapes.append((str(entry["label"]), segmentation))
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, UserError) as error:
            label = short(entry.get("label"))
            raise UserError(
                f"{where} has a shape {label} that cannot be drawn ({error}): save the frame again in LabelMe."
            ) from error
    return LabelMeFile(where, DrawnImage(width, height, shapes), len(data["shapes"]) - len(shapes))


def _segmentation(entry: dict[str, Any], width: int, height: int) -> Any:
    """Convert a shape to COCO's polygons or run lengths; None for boxes, lines and points."""
    kind = entry.get("shape_type") or "polygon"  # missing in files of early versions of LabelMe
    if kind == "polygon":
        return [[value for point in entry["points"] for value in point]]
    if kind == "circle":
        (x, y), rim = entry["points"]
        radius = math.dist((x, y), rim)
        return ellipse(x, y, radius, radius)
    if kind == "mask":
        return _brushed(entry, width, height)
    return None


def _brushed(entry: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    """Convert a small image and the corner where it lies to a shape."""
    name = "a brushed mask"
    with open_image(io.BytesIO(base64.b64decode(entry["mask"])), name) as image:
        brushed = raw_mask(image, by_color=False, name=name) > 0
    left, top = map(round, entry["points"][0])
    if min(left, top) < 0 or top + brushed.shape[0] > height or left + brushed.shape[1] > width:
        raise ValueError("a brushed mask that leaves the image")
    return crop_shape(brushed, left, top)
