"""Folders in natural order, each entered once, without a `stat` for each file."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from suture.core.errors import UserError
from suture.data.images import IMAGE_SUFFIXES

_DIGITS = re.compile(r"([0-9]+)")
_ZEROS = str.maketrans("123456789", "0" * 9)
_MASK_WORDS = ("mask", "masks", "seg", "segmentation", "label", "labels", "annot", "annotation", "annotations", "gt")
_MASK_SUFFIX = re.compile(rf"(?:[ _.-]+[a-z]+)*[ _.-]+(?:{'|'.join(_MASK_WORDS)})", re.IGNORECASE)
_SEPARATOR = re.compile("[ _.-]+")
_HASHED = re.compile(r"_(?:jpe?g|png)\.rf\.\w+$")
"""The ending that Roboflow puts behind the name of an image."""
_NUMBER_OF_FRAME = re.compile(r"[0-9]+(?:[ _.-][^0-9]*)?$")
_ENDS_WITH_FRAME = re.compile(r"(?:^|[\d\W_])frame$", re.IGNORECASE)
_BETWEEN = " _-"
VIDEO_FOLDERS = ("videos", "frames", "images", "img", "JPEGImages")
MAX_FRAME_DIGITS = 18
"""Digits of a frame's number that count, the last ones: recorders write dates before it."""


def natural(name: str) -> tuple[list[str], str]:
    """A sorting key that counts numbers as numbers: frame2 comes before frame10."""
    parts = _DIGITS.split(name)
    numbers = (part.lstrip("0") for part in parts[1::2])  # by length first, as int() takes 4,300 digits only
    parts[1::2] = [f"{len(number):06}{number}" for number in numbers]
    return parts, name


def composed(name: str) -> str:
    """Normalise a name: macOS writes ü as two characters, other systems as one.

    >>> composed("Mu\\u0308ller") == "M\\u00fcller"
    True
    """
    return unicodedata.normalize("NFC", name)


def last_number(name: str) -> int | None:
    """The last number in a name: a recorder's frame number in a frame's."""
    numbers = _DIGITS.findall(_HASHED.sub("", name))
    return int(numbers[-1][-MAX_FRAME_DIGITS:]) if numbers else None


def before_number(name: str) -> str:
    """The part of a frame's name before its number, or the whole name.

    Words like _left may follow the number, the word frame may stand before it.

    >>> [before_number(name) for name in ("caseA_0001", "101_14100", "seq_1_frame003_left", "0001", "polyp", "ck5x7a")]
    ['caseA', '101', 'seq_1', '', 'polyp', 'ck5x7a']
    """
    plain = _HASHED.sub("", name)
    number = _NUMBER_OF_FRAME.search(plain)
    if number is None:
        return plain
    before = plain[: number.start()].rstrip(_BETWEEN)
    return before[: -len("frame")].rstrip(_BETWEEN) if _ENDS_WITH_FRAME.search(before[-6:]) else before


def listing(folder: Path) -> tuple[list[str], list[str]]:
    """List a folder's folders and its files in natural order, without hidden ones."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if _is_folder(entry) else files).append(entry.name)
    except OSError as error:
        raise UserError(f"{folder} cannot be listed ({error.strerror}): check its permissions.") from error
    return in_order(folders), in_order(files)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names in natural order.

    >>> in_order(["frame10", "frame2", "frame1"])
    ['frame1', 'frame2', 'frame10']
    """
    ordered = sorted(names)
    # Names that only differ in digits, as a recorder's do, are in that order already: the keys of many take seconds.
    if len({name.translate(_ZEROS) for name in ordered}) > 1:
        ordered.sort(key=natural)
    return ordered


def iterate_folders(root: Path, depth: int = 16) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield a folder and all below it with their `listing`, parents first.

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


def holds_files(place: Path) -> bool:
    """Test whether a place is a file, or a folder with one in it or below."""
    return place.is_file() or (place.is_dir() and any(files for _, _, files in iterate_folders(place)))


def images_of(folder: Path, files: Iterable[str] | None = None) -> dict[str, str]:
    """The image files of a folder in natural order: name without suffix → name.

    Args:
        folder: The folder.
        files: Its files, if they are known.
    """
    images: dict[str, str] = {}
    for stem, name in _images(listing(folder)[1] if files is None else files):
        if images.setdefault(stem, name) != name:
            suffix = os.path.splitext(name)[1]
            raise UserError(
                f"{folder} holds both {images[stem]} and {name}, expected one image per name: give one kind alone "
                f"('{folder}/*{suffix}'), or name the masks in dataset.yaml (`masks: \"{{video}}/{{frame}}{suffix}\"`)."
            )
    require_utf8_names(folder, images.values())
    return images


def require_utf8_names(folder: Path, names: Iterable[str]) -> None:
    """Raise on names that are not UTF-8, as old zips and sticks bring them: OpenCV crashes on them."""
    paths = [f"{folder}", *names]
    try:
        "\n".join(paths if len(paths) > 1 else []).encode()  # all at once: there may be a million
    except UnicodeEncodeError as error:
        wrong = error.object.split("\n")[error.object.count("\n", 0, error.start)]
        shown = os.fsencode(wrong).decode(errors="backslashreplace")
        raise UserError(f"The name {shown} is not UTF-8: rename it (convmv does so for whole folders).") from error


def masks_beside(files: Sequence[str]) -> dict[str, list[str]]:
    """Find the masks among the frames of a folder: ending behind the name of a frame → files.

    They are images that have the name of another one and an ending that says mask.

    >>> masks_beside(["1.png", "1_mask.png", "2.png", "2_color_mask.png", "3_mask.png"])
    {'_mask.png': ['1_mask.png'], '_color_mask.png': ['2_color_mask.png']}
    """
    text = "\n".join(files).lower()  # one look at all of them: there may be a million
    if not any(word in text for word in _MASK_WORDS):
        return {}
    images = list(_images(files))
    stems = {stem for stem, _ in images}
    masks: dict[str, list[str]] = {}
    for stem, name in images:
        if frame := _frame_of(stem, stems):
            masks.setdefault(name[len(frame) :], []).append(name)
    return masks


def mask_suffixes(stem: str) -> Iterator[str]:
    """Yield the endings of a name that mark a mask, the shortest first.

    >>> list(mask_suffixes("frame_80_color_mask")), list(mask_suffixes("80.GT")), list(mask_suffixes("80mask"))
    (['_mask', '_color_mask'], ['.GT'], [])
    """
    if stem.lower().endswith(_MASK_WORDS):
        ends = (stem[separator.start() :] for separator in reversed(list(_SEPARATOR.finditer(stem))))
        yield from (end for end in ends if _MASK_SUFFIX.fullmatch(end))


def _frame_of(stem: str, stems: Collection[str]) -> str:
    """The frame whose name an image has before an ending that marks a mask, or an empty string."""
    frames = (stem.removesuffix(suffix) for suffix in mask_suffixes(stem))
    return next((frame for frame in frames if frame in stems and not _frame_of(frame, stems)), "")


def _images(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The images among files: name without suffix, and name."""
    for name in files:
        stem, _, suffix = name.rpartition(".")
        if stem and f".{suffix.lower()}" in IMAGE_SUFFIXES:
            yield stem, name


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
        return False  # a link to itself: the error comes when it is read
