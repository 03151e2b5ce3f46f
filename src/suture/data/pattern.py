"""Patterns of files, such as `{video}/Masks/{frame}_class.png`."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from os.path import splitext
from pathlib import Path

from suture.data.listing import VIDEO_FOLDERS, iterate_folders, mask_suffixes

_MAX_SAMPLED_MASKS = 50
_NUMBERED = re.compile(r".*[0-9]")
_PLACEHOLDER = re.compile(r"\{(.*?)\}")


def is_pattern(text: str) -> bool:
    """Test whether a place is a pattern, not a path."""
    return "{" in text


def validate_pattern(text: str) -> str:
    """Return a pattern; raise `ValueError` if it is none."""
    names = set(_PLACEHOLDER.findall(text))
    if "frame" not in names or names - {"video", "frame"}:
        raise ValueError("a pattern names {frame}, and {video} where it differs, such as {video}/Raw/{frame}_raw.png")
    return text


def find_files(root: Path, pattern: str) -> dict[str, str]:
    """Find the files of a pattern: `VIDEO/FRAME` → path below the root; without a video, `FOLDER/FRAME`."""
    expression = _compile(pattern)
    files: dict[str, str] = {}
    for folder, _, names in iterate_folders(root):
        within = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
        for name in names:
            if match := expression.fullmatch(within + name):
                named = match.groupdict()
                files[f"{named.get('video', within[:-1] or '.')}/{named['frame']}"] = within + name
    return {name: file for name, file in files.items() if not _is_other_kind(name, file, files)}


def propose_patterns(frames: Iterable[str], masks: Sequence[str]) -> list[tuple[str, str]]:
    """Propose patterns of frames and masks whose names are equal up to the last number.

    >>> propose_patterns(["OP1/Raw/img_01_raw.png"], ["OP1/Masks/img_01_class.png", "OP1/Masks/img_09_class.png"])
    [('{video}/Raw/{frame}_raw.png', '{video}/Masks/{frame}_class.png')]
    """
    of_key: dict[str, list[str]] = {}
    for frame in frames:
        of_key.setdefault(_split_name(frame)[1], []).append(frame)
    kinds: dict[str, Counter[tuple[str, str]]] = {}
    for mask in masks[:: max(1, len(masks) // _MAX_SAMPLED_MASKS)]:
        _, key, ending = _split_name(mask)
        kinds.setdefault(ending, Counter()).update({_patterns(frame, mask) for frame in of_key.get(key, ())})
    best = (counts.most_common(1)[0][0] for counts in kinds.values() if counts)
    return list(dict.fromkeys(best))


def _patterns(frame: str, mask: str) -> tuple[str, str]:
    """The patterns of one frame and its mask: the folders that both have are the video."""
    places = [[part for part in _split_name(path)[0].split("/") if part] for path in (frame, mask)]
    start = _count_shared(*places)
    end = 0 if start else _count_shared(*(place[::-1] for place in places))
    literal = int(start > 0 and places[0][0] in VIDEO_FOLDERS)
    if start > literal:
        places = [[*place[:literal], "{video}", *place[start:]] for place in places]
    elif end:
        places = [[*place[:-end], "{video}"] for place in places]
    within = ["".join(f"{part}/" for part in place) for place in places]
    return f"{within[0]}{{frame}}{_split_name(frame)[2]}", f"{within[1]}{{frame}}{_split_name(mask)[2]}"


def _count_shared(one: Sequence[str], other: Sequence[str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _split_name(path: str) -> tuple[str, str, str]:
    """The folder of a file, its name up to the last number, and the ending."""
    folder, _, name = path.rpartition("/")
    stem, suffix = splitext(name)
    numbered = _NUMBERED.match(stem)
    key = numbered[0] if numbered else stem
    return folder, key, stem[len(key) :] + suffix


def _is_other_kind(name: str, file: str, files: Collection[str]) -> bool:
    """Test whether a file has the name of another one's frame: 1_color_mask where `{frame}_mask` also fits 1_mask."""
    stem = Path(file).stem
    frames = (f"{name.rpartition('/')[0]}/{stem.removesuffix(suffix)}" for suffix in mask_suffixes(stem))
    return any(frame in files and frame != name for frame in frames)


def _compile(pattern: str) -> re.Pattern[str]:
    """Make an expression; a name that is repeated is the same each time."""
    expression = ""
    names = set()
    for position, part in enumerate(_PLACEHOLDER.split(pattern)):
        if position % 2 == 0:
            expression += re.escape(part)
        else:
            text = ".+" if part == "video" else "[^/]+"
            expression += f"(?P={part})" if part in names else f"(?P<{part}>{text})"
            names.add(part)
    return re.compile(expression)
