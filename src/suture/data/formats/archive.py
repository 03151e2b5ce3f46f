"""The files of an export, in a zip or in a folder. A zip is read in place and never unpacked to disk."""

import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import require_regular_file
from suture.core.text import short
from suture.data.listing import iterate_folders, natural

MAX_UNPACKED = 32 * 1024**3
"""Bytes that a zip may claim to hold: masks compress well, but a hundred thousand of them are still smaller."""
MAX_MEMBER = 1024**3
MAX_RATIO = 200
"""Unpacked bytes for each byte of a zip of more than `MAX_UNCHECKED`; masks shrink to a hundredth, zeros further."""
MAX_UNCHECKED = 256 * 1024**2
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file or a folder, as names (with slashes) and their bytes."""

    path: Path

    def names(self) -> list[str]:
        """List the files in natural order; raises on a zip that could do harm."""
        if not self.path.is_dir():
            return sorted(_safe_names(self.path), key=natural)
        places = (folder / name for folder, _, files in iterate_folders(self.path) for name in files)
        return sorted((place.relative_to(self.path).as_posix() for place in places), key=natural)

    def read(self, name: str) -> bytes:
        """Read the bytes of one file."""
        try:
            if self.path.is_dir():
                require_regular_file(self.path / name)
                return (self.path / name).read_bytes()
            archive = _opened(self.path)
            if archive.getinfo(name).file_size > MAX_MEMBER:
                raise ValueError(f"more than {MAX_MEMBER // 1024**3} GB")
            return archive.read(name)
        except _DAMAGE as error:
            raise UserError(f"{self.path}: {name} is damaged ({error}): export it again.") from error


def _safe_names(path: Path) -> list[str]:
    try:
        members = _opened(path).infolist()
        packed = os.path.getsize(path)
    except _DAMAGE as error:
        raise UserError(f"{path} is not a zip that can be read ({error}): export it again.") from error
    for member in members:
        if not member.filename:
            raise UserError(f"{path} holds a file without a name: export it again.")
        if re.match(r"[\\/]|[A-Za-z]:", member.filename) or ".." in re.split(r"[\\/]", member.filename):
            raise UserError(
                f"{path} holds the path {short(member.filename)}, which leads out of it: do not use this zip."
            )
    total = sum(member.file_size for member in members)
    if total > min(MAX_UNPACKED, max(MAX_UNCHECKED, MAX_RATIO * packed)):
        raise UserError(f"{path} claims to hold {total / 1024**3:.1f} GB: do not use this zip.")
    return [m.filename for m in members if not m.is_dir() and not m.filename.startswith("__MACOSX/")]


def _opened(path: Path) -> zipfile.ZipFile:
    require_regular_file(path)
    status = os.stat(path)
    return _open(path, os.getpid(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _open(path: Path, process: int, changed: int, size: int) -> zipfile.ZipFile:
    # Listing a zip costs more than reading a mask, so it stays open: once per process, as forks share the position in
    # the file, and until the file changes.
    return zipfile.ZipFile(path)
