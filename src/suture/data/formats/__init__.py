"""Readers of annotation tools' exports, which give masks by the names of their frames."""

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.data.formats.archive import Archive
from suture.data.formats.coco import read_coco
from suture.data.formats.cvat import LABEL_MAP, CvatExport
from suture.data.formats.cvat_images import is_cvat_images, read_cvat_images
from suture.data.formats.datumaro import is_datumaro, read_datumaro
from suture.data.formats.export import Export
from suture.data.formats.labelme import LabelMeFile, is_labelme, labelme_export, read_labelme
from suture.data.formats.labelstudio import read_label_studio

JSON, XML = ".json", ".xml"
EXPORT_SUFFIXES = (".zip", JSON, XML)


def is_export(path: Path) -> bool:
    """Test by name, label map and the start of XML whether a file or a folder is an export."""
    if suffix_of(path) == XML:
        return is_cvat_images(_read(path))
    return path.name.lower().endswith(EXPORT_SUFFIXES) or (path / LABEL_MAP).is_file()


def open_export(path: Path, annotator: str | None = None) -> Export:
    """Read an export: CVAT's as zip, folder or XML, the others' as JSON file or zip.

    Args:
        path: The export.
        annotator: Address or id of the annotator to read where Label Studio has several for a frame.
    """
    export = open_file(path, annotator)
    return labelme_export(path, {path.stem: export}) if isinstance(export, LabelMeFile) else export


def open_file(path: Path, annotator: str | None = None) -> Export | LabelMeFile:
    """Read an export, or a LabelMe file, which is of one frame: those of a folder are one export."""
    if suffix_of(path) in (JSON, XML):
        content = _read(path)
        if is_labelme(content):
            return read_labelme(str(path), content)
        return _read_shapes(path, [(str(path), content)], annotator)
    archive = Archive(path)
    names = archive.names()
    if any(posixpath.basename(name) == LABEL_MAP for name in names):
        return CvatExport.read(path, names)
    annotations = [name for name in names if name.lower().endswith(JSON)]
    annotations = annotations or [name for name in names if name.lower().endswith(XML)]
    if not annotations:
        raise UserError(
            f"{path} holds no export of CVAT (no {LABEL_MAP}, no .xml), COCO, Datumaro, Label Studio or LabelMe "
            "(no .json): export it again, or unzip it if it holds masks as images."
        )
    contents = [(f"{path}: {name}", archive.read(name)) for name in annotations]
    if not is_labelme(contents[0][1]):
        return _read_shapes(path, contents, annotator)
    frames = (posixpath.splitext(name)[0] for name in annotations)
    return labelme_export(path, {frame: read_labelme(*file) for frame, file in zip(frames, contents, strict=True)})


def _read_shapes(path: Path, files: Sequence[tuple[str, bytes]], annotator: str | None) -> Export:
    """Read files of one tool, which the first one shows."""
    content = files[0][1]
    if content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return read_cvat_images(path, files)
    if content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"["):
        return read_label_studio(path, files, annotator)
    return (read_datumaro if is_datumaro(content) else read_coco)(path, files)


def holds_labelme(path: Path) -> bool:
    """Test whether a file is LabelMe's, of one frame."""
    return suffix_of(path) == JSON and is_labelme(_read(path))


def open_labelme(path: Path, files: Mapping[str, Path]) -> Export:
    """Read the LabelMe files in a folder, given by the names of their frames, as one export."""
    return labelme_export(path, {frame: read_labelme(str(file), _read(file)) for frame, file in files.items()})


def _read(path: Path) -> bytes:
    return Archive(path.parent).read(path.name)
