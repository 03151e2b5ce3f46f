"""The labelling tools that `suture select --for` writes files for."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from suture.annotate import coco, cvat, labelstudio, png
from suture.annotate.drafts import Draft, ToolLabels


class Tool(NamedTuple):
    """Writer of a tool's files, and its three steps for the user."""

    write: Callable[[Path, Iterable[Draft], ToolLabels], None]
    readme: str


TOOLS = {
    "cvat": Tool(cvat.write, cvat.README),
    "labelstudio": Tool(labelstudio.write, labelstudio.README),
    "coco": Tool(coco.write, coco.README),
    "png": Tool(png.write, png.README),
}
