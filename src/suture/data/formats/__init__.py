"""Readers of annotation tools' exports: each gives the masks that a tool has written, by the name of their frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.text import number
from suture.data.classes import Raw
from suture.data.dataset import Boxes, Mask
from suture.data.formats.archive import Archive
from suture.data.formats.coco import read_coco
from suture.data.formats.cvat import LABEL_MAP, CvatExport
from suture.data.formats.labelme import LabelMeFile, is_labelme, labelme_export, read_labelme
from suture.data.images import IMAGE_SUFFIXES

JSON = ".json"
EXPORT_SUFFIXES = (".zip", JSON)


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

    @property
    def boxes(self) -> list[Boxes]:
        """Its files of which annotations are left out because they have no shape."""

    def mask(self, frame: str, label_ids: Mapping[str, int], annotated: tuple[str, ...] | None) -> Mask:
        """The mask of a frame; `label_ids` are the class table's ids of the labels."""


def is_export(path: Path) -> bool:
    """Whether a file or a folder is an export by its looks."""
    return path.name.lower().endswith(EXPORT_SUFFIXES) or (path / LABEL_MAP).is_file()


def open_export(path: Path) -> Export:
    """Read an export: CVAT's as zip or folder, COCO's and LabelMe's as JSON file or zip."""
    found = open_file(path)
    return labelme_export(path, {path.stem: found}) if isinstance(found, LabelMeFile) else found


def open_file(path: Path) -> Export | LabelMeFile:
    """Read an export, or a LabelMe file, which is of one frame: those of a folder are one export."""
    if suffix_of(path) == JSON:
        content = _read(path)
        name = str(path)
        return read_labelme(name, content) if is_labelme(content) else read_coco(path, [(name, content)])
    archive = Archive(path)
    names = archive.names()
    if any(name.rpartition("/")[2] == LABEL_MAP for name in names):
        return CvatExport.read(path, names)
    if annotations := [name for name in names if name.lower().endswith(JSON)]:
        contents = ((f"{path}: {name}", archive.read(name)) for name in annotations)
        if not is_labelme(archive.read(annotations[0])):
            return read_coco(path, contents)
        frames = (name[: -len(JSON)] for name in annotations)
        return labelme_export(path, {frame: read_labelme(*file) for frame, file in zip(frames, contents, strict=True)})
    neither = f"{path} is neither a CVAT export (no {LABEL_MAP}) nor one of COCO or LabelMe (no .json)"
    if images := sum(suffix_of(name) in IMAGE_SUFFIXES for name in names):
        raise UserError(
            f"{neither}, but holds {number(images, 'image')}: if they are masks, put them into a folder in its place, "
            "and where dataset.yaml names the zip, name the folder; else export it again."
        )
    raise UserError(f"{neither}: export it again.")


def holds_labelme(path: Path) -> bool:
    """Whether a file is LabelMe's, of one frame."""
    return suffix_of(path) == JSON and is_labelme(_read(path))


def open_labelme(path: Path, files: Mapping[str, Path]) -> Export:
    """Read the LabelMe files in a folder, given by the names of their frames, as one export."""
    return labelme_export(path, {frame: read_labelme(str(file), _read(file)) for frame, file in files.items()})


def _read(path: Path) -> bytes:
    return Archive(path.parent).read(path.name)
