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
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from suture.core.errors import UserError
from suture.data.dataset import Mask, Video
from suture.data.images import MaskFile

_SETTLED_NS = 2_000_000_000
"""A file changed less than this ago may change again within the same time stamp: its hash is not remembered."""
_TABLES = """
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER, changed INTEGER, sha256 TEXT);
CREATE TABLE IF NOT EXISTS videos (files TEXT PRIMARY KEY, sha256 TEXT);
"""
_seen: WeakKeyDictionary[Video, str] = WeakKeyDictionary()
"""Videos that this process knows: like their list of frames, their content is that of one moment."""


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

    A video of many frames is remembered as a whole, too: for one that is known, the disk is asked for the sizes and
    times of its files, and the memory for one row. The memory is a small file in the cache folder that many processes
    may use at once. Losing it only costs time.

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
        before = time.time_ns() - _SETTLED_NS
        unknown = [video for video in videos if video not in _seen]
        with ThreadPoolExecutor() as threads:  # a network disk answers many questions at once
            states = dict(zip(unknown, threads.map(_state, unknown), strict=True))
        question = "SELECT sha256 FROM videos WHERE files = ?"
        remembered = self._recall(question, [(state.files,) for state in states.values()])
        _seen.update((video, found) for video, found in zip(states, remembered, strict=True) if found)
        new = [video for video in states if video not in _seen]
        _seen.update(zip(new, self._hash(new), strict=True))
        settled = [(states[video].files, _seen[video]) for video in new if states[video].changed < before]
        self._remember("INSERT OR REPLACE INTO videos VALUES (?, ?)", settled)
        return [_seen[video] for video in videos]

    def _hash(self, videos: Sequence[Video]) -> Iterator[str]:
        paths = [[Path(file) for file in video.files] for video in videos]
        hashes = iter(self.files([path for files in paths for path in files]))
        for video, files in zip(videos, paths, strict=True):
            frames = [(path.name, next(hashes)) for path in files]
            yield frames[0][1] if video.file is not None else _of_frames(frames)

    def masks(self, masks: Sequence[Mask]) -> list[str]:
        """Of each mask's content; those that are no files of their own are small and are read each time."""
        files = iter(self.files([mask.path for mask in masks if isinstance(mask, MaskFile)]))
        with ThreadPoolExecutor() as threads:
            others = threads.map(_of_mask, [mask for mask in masks if not isinstance(mask, MaskFile)])
            return [next(files if isinstance(mask, MaskFile) else others) for mask in masks]

    def files(self, paths: Sequence[Path]) -> list[str]:
        """`file_sha256` of each, hashed on all cores unless remembered."""
        before = time.time_ns() - _SETTLED_NS
        keys = [_key(path) for path in paths]
        known = self._recall("SELECT sha256 FROM files WHERE path = ? AND size = ? AND changed = ?", keys)
        missing = [(path, key) for path, key, found in zip(paths, keys, known, strict=True) if found is None]
        with ThreadPoolExecutor() as threads:
            hashed = list(threads.map(file_sha256, [path for path, _ in missing]))
        settled = [(*key, found) for (_, key), found in zip(missing, hashed, strict=True) if key[2] < before]
        self._remember("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", settled)
        fresh = iter(hashed)
        return [found or next(fresh) for found in known]

    def _recall(self, question: str, keys: Sequence[tuple[Any, ...]]) -> list[str | None]:
        known: list[str | None] = [None] * len(keys)
        with contextlib.suppress(_Forgotten), self._memory() as memory:
            for number, key in enumerate(keys):
                row = memory.execute(question, key).fetchone()
                known[number] = row[0] if row else None
        return known

    def _remember(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            with contextlib.suppress(_Forgotten), self._memory() as memory, memory:
                memory.executemany(statement, rows)

    @contextlib.contextmanager
    def _memory(self) -> Iterator[sqlite3.Connection]:
        """The open memory. Whatever is wrong with it (damaged, busy, disk full) means that it is not remembered."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as memory:
                memory.executescript(_TABLES)
                yield memory
        except (sqlite3.OperationalError, OSError) as error:
            raise _Forgotten from error
        except sqlite3.DatabaseError as error:
            self.path.unlink(missing_ok=True)
            raise _Forgotten from error


class _Forgotten(Exception):
    """The memory cannot be used: hash again."""


class _State(NamedTuple):
    """A video's files as the disk lists them."""

    files: str
    """SHA-256 of their paths, sizes and times of change."""
    changed: int
    """When the last of them was changed."""


def _state(video: Video) -> _State:
    kind = "frames" if video.file is None else "file"
    digest, changed = hashlib.sha256(f"{kind}\0{os.getcwd()}\n".encode()), 0
    for file in video.files:
        status = _status(file)
        changed = max(changed, status.st_mtime_ns)
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return _State(digest.hexdigest(), changed)


def _of_frames(frames: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{name}\0{content}\n" for name, content in frames).encode()).hexdigest()


def _of_mask(mask: Mask) -> str:
    try:
        return hashlib.sha256(mask.content()).hexdigest()
    except OSError as error:
        raise _unreadable(mask.name, error) from error


def _key(path: Path) -> tuple[str, int, int]:
    status = _status(path)
    return os.path.abspath(path), status.st_size, status.st_mtime_ns


def _status(path: Path | str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(name: Path | str, error: OSError) -> UserError:
    return UserError(f"{name} cannot be read ({error.strerror}): check that it is there and may be read.")
