"""Patterns of files, such as `{video}/Masks/{frame}_class.png`."""

import re
from collections.abc import Collection
from pathlib import Path

from suture.data.listing import iterate_folders, mask_suffixes

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
