"""Label Studio's own JSON: tasks with brushed masks and polygons of one or several annotators."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.text import NAMED, listed, number
from suture.data.formats.shapes import DrawnImage, Shape, ShapeExport, ShapeFile, frame_of, read_json, validate_size
from suture.data.images import IMAGE_SUFFIXES

FRAME = "frame"
"""Key of a task's data that carries the name of our frame."""
_WIDTH, _HEIGHT = "original_width", "original_height"


class _LabelStudioAnnotation(BaseModel):
    result: list[dict[str, Any]]
    was_cancelled: bool | None = False


class _Task(BaseModel):
    data: dict[str, Any]
    annotations: list[_LabelStudioAnnotation]


def read_label_studio(path: Path, files: Iterable[tuple[str, bytes]], annotator: str | None) -> ShapeExport:
    """Read the labels and shapes of Label Studio's files, of one annotator where several labelled a frame."""
    return ShapeExport.combine(path, (_parse(*file, annotator) for file in files))


def _parse(where: str, content: bytes, annotator: str | None) -> ShapeFile:
    tasks = read_json(where, content, RootModel[list[_Task]], "Label Studio")
    images: dict[str, DrawnImage] = {}
    several: dict[str, list[str]] = {}
    skipped = waiting = without_shape = 0
    for task in tasks:
        frame = _frame(task["data"], where)
        done = [one for one in task["annotations"] if not one.get("was_cancelled")]
        chosen = [one for one in done if annotator in (None, *_annotator(one))]
        if len(chosen) > 1:
            several[frame] = sorted({_annotator(one)[0] for one in chosen})
        elif not chosen:
            waiting += not task["annotations"] or bool(done)
            skipped += bool(task["annotations"]) and not done
        elif frame in images:
            raise UserError(f"{where} has two tasks of the frame {frame}: delete one, and export it again.")
        else:
            image = images[frame] = _image(chosen[0]["result"], task["data"], f"{where}: {frame}")
            regions = {one.get("id", place) for place, one in enumerate(chosen[0]["result"]) if _WIDTH in one}
            without_shape += len(regions) - len(image.shapes)
    if several:
        frame, names = next(iter(several.items()))
        raise UserError(
            f"{where}: {number(len(several), 'frame')} with several annotations (first: {frame} by "
            f"{listed(names, NAMED)}): import it by `suture labels import --annotator NAME`, or delete all but one."
        )
    notes = [
        f"{where}: {number(count, 'task')} {state}: taken as not labelled."
        for count, state in ((skipped, "skipped"), (waiting, "without an annotation"))
        if count
    ]
    labels = {label: label for image in images.values() for label, _ in image.shapes}
    return ShapeFile(where, labels, images, without_shape, notes)


def _frame(data: Mapping[str, Any], where: str) -> str:
    """Name of a task's frame: from our own key, else from the first value that names an image."""
    names = (value for value in data.values() if isinstance(value, str) and suffix_of(value) in IMAGE_SUFFIXES)
    name = data.get(FRAME) or next(names, None)
    if not isinstance(name, str):
        raise UserError(f"{where} has a task that names no image: keep `{FRAME}` or the image's name in its data.")
    return frame_of(name)


def _annotator(annotation: Mapping[str, Any]) -> tuple[str, str]:
    """The annotator's address, if it is known, and id."""
    by = annotation.get("completed_by")
    person = by if isinstance(by, Mapping) else {"id": by}
    return str(person.get("email") or person.get("id")), str(person.get("id"))


def _image(regions: list[dict[str, Any]], data: Mapping[str, Any], where: str) -> DrawnImage:
    """Convert regions; an annotation without any states that the frame shows nothing, if its size is known."""
    size = next((one for one in regions if _WIDTH in one), data)
    if _WIDTH not in size:
        return DrawnImage(1, 1, [])
    width, height = validate_size(where, size[_WIDTH], size[_HEIGHT])
    shapes: list[Shape] = []
    for region in regions:
        value = region.get("value", {})
        labels = value.get(region.get("type"))
        try:
            if labels and "rle" in value:
                shapes.append((str(labels[0]), {"brush": value["rle"]}))
            elif labels and "points" in value:
                corners = [(x * width / 100, y * height / 100) for x, y in value["points"]]
                shapes.append((str(labels[0]), [[coordinate for corner in corners for coordinate in corner]]))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{where} has a region that cannot be drawn ({error}): export it again.") from error
    return DrawnImage(width, height, shapes, is_blank=not regions)
