"""The cache folder: measurements of files that are shared by all commands and can be made again at any time."""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from suture.core.errors import UserError
from suture.core.io import write_bytes

SETTLED_NS = 2_000_000_000
"""A file changed more recently may change again within the same time stamp: nothing is kept of it."""


def cache_folder() -> Path:
    """Folder for files that can be made again: `$SUTURE_CACHE`, or the platform's cache folder."""
    if stated := os.environ.get("SUTURE_CACHE"):
        return Path(stated).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "suture"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suture"


class FileState(NamedTuple):
    """Files as the disk lists them."""

    key: str
    """SHA-256 of their paths, sizes and times of change."""
    changed: int
    """Time of the last change."""

    @property
    def is_settled(self) -> bool:
        """True if a later change would show in the key."""
        return self.changed < time.time_ns() - SETTLED_NS


def file_state(files: Sequence[Path | str], kind: str) -> FileState:
    """List files; states of different kinds have different keys."""
    digest, changed = hashlib.sha256(f"{kind}\n".encode()), 0
    for file in files:
        try:
            status = os.stat(file)
        except OSError as error:
            raise unreadable(file, error) from error
        changed = max(changed, status.st_mtime_ns)
        path = file if os.path.isabs(file) else os.path.abspath(file)
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return FileState(digest.hexdigest(), changed)


def unreadable(name: Path | str, error: OSError) -> UserError:
    return UserError(f"{name} cannot be read ({error.strerror}): check that it is there and may be read.")


class CachedArrays:
    """Arrays that were measured on some files; they are lost as soon as one of the files changes.

    Args:
        files: The files.
        kind: Name of the measurement, and all that determines it besides the files.

    >>> cached = CachedArrays(["case01.mp4"], "frame index 1")  # doctest: +SKIP
    >>> cached.load() is None  # doctest: +SKIP
    True
    """

    def __init__(self, files: Sequence[Path | str], kind: str) -> None:
        self._state = FileState("", time.time_ns())
        with contextlib.suppress(UserError):  # of a missing file nothing is known
            self._state = file_state(files, kind)
        self.path = cache_folder() / "measured" / f"{self._state.key}.npz"

    def load(self) -> dict[str, np.ndarray] | None:
        """Read the arrays; None if there are none."""
        # Whatever NumPy throws at a damaged file: it is measured again.
        with contextlib.suppress(Exception), np.load(self.path) as arrays:
            return dict(arrays)
        return None

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays, if the folder can be written and the files are settled."""
        content = BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        if self._state.is_settled:
            with contextlib.suppress(OSError):
                write_bytes(self.path, content.getbuffer())
