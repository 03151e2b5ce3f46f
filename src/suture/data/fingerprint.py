"""SHA-256 of what a dataset holds: by content, so that moved or renamed folders are still the same data."""

import contextlib
import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suture.data.dataset import Mask, Video
from suture.errors import UserError

_SETTLED_NS = 2_000_000_000
"""A file changed less than this ago may change again within the same time stamp: its hash is not remembered."""
_TABLE = "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER, changed INTEGER, sha256 TEXT)"


def cache_folder() -> Path:
    """Where Suture keeps what it can make again: `$SUTURE_CACHE`, or the platform's cache folder."""
    if stated := os.environ.get("SUTURE_CACHE"):
        return Path(stated).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "suture"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suture"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


class Fingerprints:
    """Hashes files once: what was hashed is remembered by path, size and time of change.

    The memory is a small file in the cache folder that many processes may use at once. Losing it only costs time.

    >>> Fingerprints().video(dataset["case01"])  # doctest: +SKIP
    '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.path = (cache or cache_folder()) / "fingerprints.sqlite"

    def video(self, video: Video) -> str:
        """Of the video's file, or of the names and contents of its frames, in order."""
        return self.videos([video])[0]

    def videos(self, videos: Sequence[Video]) -> list[str]:
        """Of each video; all their files are hashed together."""
        paths = [_files_of(video) for video in videos]
        hashes = iter(self.files([path for files in paths for path in files]))
        return [
            next(hashes) if video.file is not None else _of_frames([(path.name, next(hashes)) for path in files])
            for video, files in zip(videos, paths, strict=True)
        ]

    def masks(self, masks: Iterable[Mask]) -> list[str]:
        """Of each mask's content; masks are small and are read each time."""
        with ThreadPoolExecutor() as threads:
            return list(threads.map(_of_mask, masks))

    def files(self, paths: Sequence[Path]) -> list[str]:
        """`file_sha256` of each, hashed on all cores unless remembered."""
        keys = [_key(path) for path in paths]
        known = self._recall(keys)
        missing = [(path, key) for path, key, found in zip(paths, keys, known, strict=True) if found is None]
        with ThreadPoolExecutor() as threads:
            hashed = list(threads.map(file_sha256, [path for path, _ in missing]))
        latest = time.time_ns() - _SETTLED_NS
        self._remember([(*key, found) for (_, key), found in zip(missing, hashed, strict=True) if key[2] < latest])
        fresh = iter(hashed)
        return [found or next(fresh) for found in known]

    def _recall(self, keys: Sequence[tuple[str, int, int]]) -> list[str | None]:
        known: list[str | None] = [None] * len(keys)
        with contextlib.suppress(_Forgotten), self._memory() as memory:
            question = "SELECT sha256 FROM files WHERE path = ? AND size = ? AND changed = ?"
            for number, key in enumerate(keys):
                row = memory.execute(question, key).fetchone()
                known[number] = row[0] if row else None
        return known

    def _remember(self, rows: Sequence[tuple[str, int, int, str]]) -> None:
        if rows:
            with contextlib.suppress(_Forgotten), self._memory() as memory, memory:
                memory.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _memory(self) -> Iterator[sqlite3.Connection]:
        """The open memory. Whatever is wrong with it (damaged, busy, disk full) means that it is not remembered."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as memory:
                memory.execute(_TABLE)
                yield memory
        except (sqlite3.OperationalError, OSError) as error:
            raise _Forgotten from error
        except sqlite3.DatabaseError as error:
            self.path.unlink(missing_ok=True)
            raise _Forgotten from error


class _Forgotten(Exception):
    """The memory cannot be used: hash again."""


def _files_of(video: Video) -> list[Path]:
    if video.file is not None:
        return [video.file.path]
    return [frame.image for frame in video.frames if frame.image is not None]


def _of_frames(frames: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{name}\0{content}\n" for name, content in frames).encode()).hexdigest()


def _of_mask(mask: Mask) -> str:
    try:
        return hashlib.sha256(mask.content()).hexdigest()
    except OSError as error:
        raise _unreadable(mask.name, error) from error


def _key(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return os.path.abspath(path), status.st_size, status.st_mtime_ns


def _unreadable(name: Path | str, error: OSError) -> UserError:
    return UserError(f"{name} cannot be read ({error.strerror}): check that it is there and may be read.")
