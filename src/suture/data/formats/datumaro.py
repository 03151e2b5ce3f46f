"""Datumaro JSON: masks and polygons of images, as CVAT and Datumaro write them below `annotations/`."""

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


class _Item(BaseModel):
    id: str
    annotations: list[dict[str, Any]]


class _DatumaroFile(BaseModel):
    categories: dict[str, dict[str, Any]]
    items: list[_Item]


def is_datumaro(content: bytes) -> bool:
    """Test whether a JSON file looks like Datumaro's, without parsing it."""
    return b'"items"' in content and b'"categories"' in content and b'"images"' not in content


def read_datumaro(path: Path, files: Iterable[tuple[str, bytes]]) -> ShapeExport:
    """Read the labels and shapes of Datumaro's files, given by their names for messages and their contents."""
    return ShapeExport.combine(path, (_parse(*file) for file in files))


def _parse(where: str, content: bytes) -> ShapeFile:
    data = read_json(where, content, _DatumaroFile, "Datumaro")
    labels = [str(label["name"]) for label in data["categories"].get("label", {}).get("labels", [])]
    images: dict[str, DrawnImage] = {}
    without_shape = 0
    for item in data["items"]:
        frame = frame_of(item["id"] + ".png")  # a name may hold dots, an id has no suffix
        if frame in images:
            raise UserError(f"{where} holds two images {frame}: ids must differ.")
        try:
            ordered = sorted(item["annotations"], key=lambda one: one.get("z_order", 0))
            shapes = [(labels[one["label_id"]], _segmentation(one)) for one in ordered]
            drawn: list[Shape] = [shape for shape in shapes if has_area(shape[1])]
            sizes = [shape["size"] for _, shape in drawn if isinstance(shape, dict)]
            height, width = (item.get("image") or {}).get("size") or (sizes or [(1, 1)])[0]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise UserError(f"{where}: {frame} cannot be read ({error!r}): export it again, with images.") from error
        images[frame] = DrawnImage(*validate_size(f"{where}: {frame}", width, height), drawn)
        without_shape += len(shapes) - len(drawn)
    return ShapeFile(where, {label: label for label in labels}, images, without_shape)


def _segmentation(annotation: dict[str, Any]) -> Any:
    """COCO's run lengths or polygons; None for boxes, lines and points."""
    if annotation["type"] == "mask":
        return annotation["rle"]
    return [annotation["points"]] if annotation["type"] == "polygon" else None
