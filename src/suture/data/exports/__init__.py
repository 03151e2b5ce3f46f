"""Readers of annotation tools' exports: each gives the masks that a tool has written, by the name of their frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from suture.data.classes import Raw
from suture.data.dataset import Mask
from suture.data.exports.archive import Archive
from suture.data.exports.coco import read_coco
from suture.data.exports.cvat import LABEL_MAP, CvatExport
from suture.errors import UserError

EXPORT_SUFFIXES = (".zip", ".json")


class Export(Protocol):
    """What a tool has written: labels, and frames with masks."""

    @property
    def path(self) -> Path:
        """The zip, folder or file."""

    @property
    def labels(self) -> Mapping[str, Raw]:
        """The tool's labels, each with the tool's own colour or id for it."""

    @property
    def frames(self) -> list[str]:
        """The names of the frames that have a mask: paths with slashes, without suffix."""

    @property
    def notes(self) -> list[str]:
        """What the user should know of it."""

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> Mask:
        """The mask of a frame; `label_ids` are the class table's ids of the labels."""


def is_export(path: Path) -> bool:
    """Whether a file or a folder is an export by its looks."""
    return path.name.lower().endswith(EXPORT_SUFFIXES) or (path / LABEL_MAP).is_file()


def open_export(path: Path) -> Export:
    """Read an export: CVAT's as zip or folder, COCO's as JSON file or zip."""
    if path.suffix.lower() == ".json":
        return read_coco(path, [(str(path), Archive(path.parent).read(path.name))])
    archive = Archive(path)
    names = archive.names()
    if any(name.rpartition("/")[2] == LABEL_MAP for name in names):
        return CvatExport.read(path, names)
    if annotations := [name for name in names if name.lower().endswith(".json")]:
        return read_coco(path, ((f"{path}: {name}", archive.read(name)) for name in annotations))
    raise UserError(f"{path} is neither a CVAT export (no {LABEL_MAP}) nor a COCO one (no .json): export it again.")
