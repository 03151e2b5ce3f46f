"""COCO JSON: polygons and run lengths for images that are known by their file name."""

import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel

from suture.core.errors import UserError
from suture.core.text import number
from suture.data.dataset import Boxes
from suture.data.formats.shapes import DrawnImage, Shape, ShapeExport, has_area, is_absurd, read_json


def _plain(value: Any) -> Any:
    if not isinstance(value, int | float | str):
        raise ValueError("expected a number or text")
    return value


Plain = Annotated[Any, AfterValidator(_plain)]
"""An id or a name: tools write either as number or as text."""


class _Category(BaseModel):
    id: int
    name: Plain


class _Image(BaseModel):
    id: Plain
    file_name: Plain
    width: int
    height: int


class _Annotation(BaseModel):
    image_id: Plain
    category_id: Plain


class _File(BaseModel):
    """What is read of a COCO file; the segmentations only when they are drawn."""

    categories: list[_Category]
    images: list[_Image]
    annotations: list[_Annotation]


def read_coco(path: Path, files: Iterable[tuple[str, bytes]]) -> ShapeExport:
    """Read the labels, and which frames have shapes; `files` are names (for messages) and contents."""
    labels: dict[str, int] = {}
    images: dict[str, DrawnImage] = {}
    boxes: list[Boxes] = []
    listed = 0
    for name, content in files:
        found_labels, found_images, without = _parse(name, content)
        if twice := found_images.keys() & images.keys():
            raise UserError(f"{path} holds two images {min(twice)}: file names must differ.")
        labels |= found_labels
        images |= {frame: image for frame, image in found_images.items() if image.shapes}
        listed += len(found_images)
        if without:
            boxes.append(Boxes(name, without, sum(len(image.shapes) for image in found_images.values())))
    empty = f"{path.name}: of {number(listed, 'image')}, {listed - len(images):,} without any shape"
    shows = "an annotation of empty run lengths would say that a frame shows nothing"
    notes = [f"{empty}: taken as not labelled ({shows})."] if len(images) < listed else []
    return ShapeExport(path, labels, images, notes, boxes)


def _stored(name: str) -> str:
    """The path behind the address that Label Studio gives to a file of its local storage; else the name as it is."""
    _, address, path = name.partition("/local-files/?d=")
    return unquote(path) if address else name


def _parse(where: str, content: bytes) -> tuple[dict[str, int], dict[str, DrawnImage], int]:
    """The labels, the images with their shapes, and how many annotations have no shape."""
    data = read_json(where, content, _File, "COCO", "export it again as COCO")
    labels = {int(category["id"]): str(category["name"]) for category in data["categories"]}
    shapes: dict[Any, list[Shape]] = {}
    without = 0
    for annotation in data["annotations"]:
        label = labels.get(annotation["category_id"])
        if label is None:
            raise UserError(f"{where} has shapes of the category id {annotation['category_id']}, not listed in it.")
        found = shapes.setdefault(annotation["image_id"], [])
        segmentation = annotation.get("segmentation")
        if has_area(segmentation):
            found.append((label, segmentation))
        else:
            without += 1
    images: dict[str, DrawnImage] = {}
    for entry in data["images"]:
        frame = posixpath.splitext(posixpath.normpath(_stored(str(entry["file_name"])).replace("\\", "/")))[0]
        if frame in images:
            raise UserError(f"{where} holds two images {entry['file_name']}: file names must differ.")
        width, height = int(entry["width"]), int(entry["height"])
        images[frame] = DrawnImage(width, height, tuple(shapes.pop(entry["id"], ())))
        if is_absurd(width, height):
            raise UserError(f"{where}: {entry['file_name']} is {width}×{height}, which is absurd.")
    if shapes:
        raise UserError(f"{where} has shapes for the image id {next(iter(shapes))}, which it does not list.")
    return {label: category for category, label in labels.items()}, images, without
