"""COCO JSON, also of Label Studio: polygons and run lengths for images, by file name."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from suture.core.errors import UserError
from suture.data.formats.shapes import (
    DrawnImage,
    Shape,
    ShapeExport,
    ShapeFile,
    frame_of,
    has_area,
    read_json,
    validate_size,
)

Key = int | float | str
"""An id or a name: tools write either as number or as text."""


class _Category(BaseModel):
    id: int
    name: Key


class _Image(BaseModel):
    id: Key
    file_name: Key
    width: int
    height: int


class _CocoAnnotation(BaseModel):
    image_id: Key
    category_id: Key


class _CocoFile(BaseModel):
    """Required content; segmentations are validated when they are drawn."""

    categories: list[_Category]
    images: list[_Image]
    annotations: list[_CocoAnnotation]


def read_coco(path: Path, files: Iterable[tuple[str, bytes]]) -> ShapeExport:
    """Read the labels and shapes of COCO files.

    Args:
        path: The export.
        files: Name, for messages, and content of each file.
    """
    return ShapeExport.combine(path, (_parse(*file) for file in files))


def _parse(where: str, content: bytes) -> ShapeFile:
    data = read_json(where, content, _CocoFile, "COCO")
    labels = {int(category["id"]): str(category["name"]) for category in data["categories"]}
    shapes: dict[Any, list[Shape]] = {image["id"]: [] for image in data["images"]}
    without_shape = 0
    for annotation in data["annotations"]:
        image, category = annotation["image_id"], annotation["category_id"]
        if image not in shapes or category not in labels:
            raise UserError(
                f"{where} has an annotation of image id {image} and category id {category}, of which it does not list "
                "both: export it again."
            )
        segmentation = annotation.get("segmentation")
        if has_area(segmentation):
            shapes[image].append((labels[category], segmentation))
        else:
            without_shape += 1
    images: dict[str, DrawnImage] = {}
    for entry in data["images"]:
        name = str(entry["file_name"])
        frame = frame_of(name)
        if frame in images:
            raise UserError(f"{where} holds two images {name}: file names must differ.")
        width, height = validate_size(f"{where}: {name}", entry["width"], entry["height"])
        images[frame] = DrawnImage(width, height, tuple(shapes[entry["id"]]))
    return ShapeFile(where, {label: category for category, label in labels.items()}, images, without_shape)
