"""Patterns of files, such as `{video}/Masks/{frame}_class.png`."""

import re
from pathlib import Path

from suture.data.listing import iterate_folders

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
    return files


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
