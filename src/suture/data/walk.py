"""Folders: listed in natural order, each walked once however links lead, and never a stat per file."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from suture.data.images import IMAGE_SUFFIXES
from suture.errors import UserError

_DIGITS = re.compile(r"([0-9]+)")
_ZEROS = str.maketrans("123456789", "0" * 9)


def natural(name: str) -> tuple[list[str | int], str]:
    """A sorting key that counts numbers as numbers: frame2 comes before frame10."""
    parts = _DIGITS.split(name)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)], name


def last_number(name: str) -> int | None:
    """The last number in a name: a recorder's frame number in a frame's."""
    numbers = _DIGITS.findall(name)
    return int(numbers[-1]) if numbers else None


def listing(folder: Path) -> tuple[list[str], list[str]]:
    """The names of a folder's folders and of its files, in natural order; hidden ones are left out."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if _is_folder(entry) else files).append(entry.name)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be listed ({error.strerror}): check that it is a folder you may read."
        ) from error
    return in_order(folders), in_order(files)


def in_order(names: Iterable[str]) -> list[str]:
    """Names in natural order.

    >>> in_order(["frame10", "frame2", "frame1"])
    ['frame1', 'frame2', 'frame10']
    """
    ordered = sorted(names)
    # Names that only differ in digits, as a recorder's do, are in that order already: the keys of many take seconds.
    if len({name.translate(_ZEROS) for name in ordered}) > 1:
        ordered.sort(key=natural)
    return ordered


def walk(root: Path, depth: int = 16) -> Iterator[tuple[Path, list[str], list[str]]]:
    """A folder and all below it with their `listing`, parents first.

    Links are followed, but no folder is entered twice, so a circle of links ends. As with `os.walk`, names that the
    caller takes out of the list of folders are not entered.
    """
    # A link to a folder above would lead through the whole disk.
    seen = {_identity(folder) for folder in root.resolve().parents}
    pending = [(root, depth)]
    while pending:
        folder, left = pending.pop()
        if (identity := _identity(folder)) in seen:
            continue
        seen.add(identity)
        folders, files = listing(folder)
        yield folder, folders, files
        if left:
            pending += [(folder / name, left - 1) for name in reversed(folders)]


def images_of(folder: Path, files: Iterable[str] | None = None) -> dict[str, str]:
    """The image files of a folder in natural order: name without suffix → name."""
    found: dict[str, str] = {}
    for name in listing(folder)[1] if files is None else files:
        stem, _, suffix = name.rpartition(".")
        if stem and f".{suffix.lower()}" in IMAGE_SUFFIXES and found.setdefault(stem, name) != name:
            raise UserError(
                f"{folder} holds both {found[stem]} and {name}, expected one image per name: "
                "keep frames and masks in folders of their own."
            )
    return found


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}): check the link or its permissions.") from error
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself: whoever reads the file is told
