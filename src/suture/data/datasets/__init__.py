"""Datasets: one module each, with its layout on disk, classes, split and protocols. `SOURCES` lists the modules."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suture.core.errors import UserError
from suture.data import messages
from suture.data.dataset import Dataset, Frame
from suture.data.dataset_file import FILE_NAME, nearest
from suture.data.images import MaskFile
from suture.data.scoring_rules import Protocol

SOURCES = (
    "folder",  # first: a dataset.yaml goes before any guess
    "cadis",
    "endovis18",
    "vocalfolds",
)


@dataclass(frozen=True)
class Source:
    """Reader of one dataset, the `SOURCE` of its module.

    Args:
        matches: Recognises the dataset by its layout, cheaply.
        load: `load(root, **options) -> Dataset`; its keyword arguments are the source's options.
        protocols: Scoring rules of publications on the dataset.
    """

    matches: Callable[[Path], bool]
    load: Callable[..., Dataset]
    protocols: tuple[Protocol, ...] = ()


def sources() -> dict[str, Source]:
    """Return every source by name."""
    return {name: importlib.import_module(f"{__name__}.{name}").SOURCE for name in SOURCES}


def protocols() -> dict[str, Protocol]:
    """Return every protocol by name: the default one, and those of the datasets."""
    listed = [Protocol("default"), *(protocol for source in sources().values() for protocol in source.protocols)]
    return {protocol.name: protocol for protocol in listed}


def protocol_named(name: str) -> Protocol:
    """Return the protocol of that name."""
    known = protocols()
    if name not in known:
        raise UserError(
            f"The protocol in dataset.yaml is {name!r}, expected one of {', '.join(known)}{nearest(name, known)}: "
            f"{messages.PROTOCOL}."
        )
    return known[name]


def make_frames(
    numbered: Iterable[tuple[int, str]], folder: Path, images: Mapping[str, str], labels: Path, masks: Mapping[str, str]
) -> list[Frame]:
    """Make frames of images and masks that have the same names.

    Args:
        numbered: The recorder's number and the name without suffix of each frame, in order.
        folder: Folder of the images.
        images: File of each image by its name without suffix.
        labels: Folder of the masks.
        masks: File of each mask by its name without suffix.
    """
    return [
        Frame(index, number, folder / images[stem], MaskFile(labels / masks[stem]) if stem in masks else None)
        for index, (number, stem) in enumerate(numbered)
    ]


def load_dataset(root: str | Path, source: str = "auto", /, **options: Any) -> Dataset:
    """Open the dataset in a folder.

    Args:
        root: The folder, or its `dataset.yaml`.
        source: Name of a source; `auto` recognises known layouts and takes any other for the user's own.
        options: Options of the source.

    >>> load_dataset("vocalfolds", protocol="patients")  # doctest: +SKIP
    """
    root = Path(root)
    if not root.exists():
        raise UserError(f"{root} does not exist: give the folder that holds the dataset.")
    if root.name == FILE_NAME:
        root = root.parent
    known = sources()
    if source == "auto":
        source = next((name for name, candidate in known.items() if candidate.matches(root)), "folder")
    elif source not in known:
        raise UserError(f"There is no source {source!r}; the sources are {', '.join(sorted(known))}.")
    load = known[source].load
    accepted = [name for name in inspect.signature(load).parameters if name != "root"]
    if unknown := sorted(set(options) - set(accepted)):
        raise UserError(
            f"The source {source} has no option {unknown[0]!r}; its options: {', '.join(accepted) or 'none'}."
        )
    return load(root, **options)
