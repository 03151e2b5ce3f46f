"""CVAT for images 1.1: `annotations.xml` with masks, polygons and ellipses of each image."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from suture.core.errors import UserError
from suture.core.text import short
from suture.data.formats.shapes import (
    DrawnImage,
    Shape,
    ShapeExport,
    ShapeFile,
    ellipse,
    frame_of,
    has_area,
    validate_size,
)

ROOT = b"<annotations>"


def is_cvat_images(content: bytes) -> bool:
    """Test whether the start of a file looks like CVAT's XML."""
    return ROOT in content[:200]


def read_cvat_images(path: Path, files: Iterable[tuple[str, bytes]]) -> ShapeExport:
    """Read the labels and shapes of CVAT's XML files, given by their names for messages and their contents."""
    return ShapeExport.combine(path, (_parse(*file) for file in files))


def _parse(where: str, content: bytes) -> ShapeFile:
    try:
        if b"<!DOCTYPE" in content:  # entities could grow without end
            raise ValueError("a document type, which CVAT never writes")
        root = ET.fromstring(content)
        if root.find("track") is not None:
            raise ValueError("tracks of a video; export it as CVAT for images 1.1")
        labels = [name.text or "" for name in root.iterfind("meta//labels/label/name")]
        images: dict[str, DrawnImage] = {}
        without_shape = 0
        for image in root.iterfind("image"):
            frame = frame_of(image.attrib["name"])
            if frame in images:
                raise ValueError(f"two images {frame}")
            width, height = validate_size(f"{where}: {frame}", image.attrib["width"], image.attrib["height"])
            ordered = sorted(image, key=lambda shape: int(shape.get("z_order", 0)))
            shapes = [(shape.attrib["label"], _segmentation(shape)) for shape in ordered]
            drawn: list[Shape] = [shape for shape in shapes if has_area(shape[1])]
            without_shape += len(shapes) - len(drawn)
            images[frame] = DrawnImage(width, height, drawn)
    except (ET.ParseError, ValueError, KeyError) as error:
        raise UserError(f"{where} is not CVAT's XML for images ({short(str(error))}): export it again.") from error
    used = {label: None for image in images.values() for label, _ in image.shapes}
    return ShapeFile(where, {label: label for label in (*labels, *used)}, images, without_shape)


def _segmentation(shape: ET.Element) -> object:
    """Convert a shape to COCO's polygons or the run lengths of a crop; None for boxes, lines, points and tags."""
    if shape.tag == "mask":
        box = [int(shape.attrib[name]) for name in ("left", "top", "width", "height")]
        return {"box": box, "counts": [int(run) for run in shape.attrib["rle"].split(",")]}
    if shape.tag == "polygon":
        return [[float(value) for point in shape.attrib["points"].split(";") for value in point.split(",")]]
    if shape.tag == "ellipse":
        x, y, rx, ry = (float(shape.attrib[name]) for name in ("cx", "cy", "rx", "ry"))
        return ellipse(x, y, rx, ry, float(shape.get("rotation", 0)))
    return None
