"""SHA-256 of a dataset's content, so that moved or renamed folders are still the same data."""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakKeyDictionary

from suture.core.io import require_regular_file
from suture.data.cache import cache_folder, file_state, unreadable
from suture.data.dataset import Mask, Video
from suture.data.images import MaskFile

_session_hashes: WeakKeyDictionary[Video, str] = WeakKeyDictionary()
"""Hashes of this process's videos: like the list of frames, their content is that of one moment."""


def file_sha256(path: Path | str) -> str:
    """Hash a file's bytes with SHA-256, in hexadecimal."""
    require_regular_file(Path(path))
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


class Fingerprints:
    """Hashes files, videos and masks, and remembers the hashes by path, size and time of change.

    A video of many frames is remembered as a whole too. The hashes are kept in a small database in the cache folder
    that many processes may use at once. Losing it only costs time.

    >>> Fingerprints().video(dataset["case01"])  # doctest: +SKIP
    '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.path = (cache or cache_folder()) / "fingerprints.sqlite"

    def video(self, video: Video) -> str:
        """Hash the video's file, or the names and contents of its frames, in order."""
        return self.videos([video])[0]

    def videos(self, videos: Sequence[Video]) -> list[str]:
        """Hash several videos at once."""
        new = [video for video in videos if video not in _session_hashes]
        contents = [(video.files, "file" if video.file else "frames") for video in new]
        for video, content in zip(new, self._hash(contents), strict=True):
            read_as = hashlib.sha256(f"{content} deinterlaced".encode()).hexdigest() if video.deinterlace else content
            _session_hashes[video] = read_as
        return [_session_hashes[video] for video in videos]

    def masks(self, masks: Sequence[Mask]) -> list[str]:
        """Hash the content of masks; those that are no files of their own are small and are read each time."""
        files = iter(self.files([mask.path for mask in masks if isinstance(mask, MaskFile)]))
        with ThreadPoolExecutor() as threads:
            others = threads.map(_of_mask, [mask for mask in masks if not isinstance(mask, MaskFile)])
            return [next(files if isinstance(mask, MaskFile) else others) for mask in masks]

    def files(self, paths: Sequence[Path | str]) -> list[str]:
        """Hash files on all cores, as `file_sha256` does."""
        return self._hash([([path], "file") for path in paths])

    def _hash(self, contents: Sequence[tuple[Sequence[Path | str], str]]) -> list[str]:
        """Recall the hashes of files, or of folders of frames with their names; compute and remember the others."""
        with ThreadPoolExecutor() as threads:  # a network disk answers many requests at once
            states = list(threads.map(lambda content: file_state(*content), contents))
            settled = [state.is_settled for state in states]
            hashes = self._recall([state.key for state in states])
            missing = [place for place, known in enumerate(hashes) if known is None]
            computed = threads.map(file_sha256, [file for place in missing for file in contents[place][0]])
            for place in missing:
                files, kind = contents[place]
                named = kind == "frames"
                text = "".join(f"{os.path.basename(file)}\0{next(computed)}\n" for file in files) if named else ""
                hashes[place] = hashlib.sha256(text.encode()).hexdigest() if named else next(computed)
        self._remember([(states[place].key, hashes[place]) for place in missing if settled[place]])
        return [known for known in hashes if known is not None]

    def _recall(self, keys: Sequence[str]) -> list[str | None]:
        hashes: list[str | None] = [None] * len(keys)
        with contextlib.suppress(_Unusable), self._database() as database:
            for place, key in enumerate(keys):
                row = database.execute("SELECT sha256 FROM hashes WHERE key = ?", [key]).fetchone()
                hashes[place] = row[0] if row else None
        return hashes

    def _remember(self, rows: Sequence[tuple[str, str | None]]) -> None:
        if rows:
            with contextlib.suppress(_Unusable), self._database() as database, database:
                database.executemany("INSERT OR REPLACE INTO hashes VALUES (?, ?)", rows)

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open the database; if it is damaged or busy or the disk is full, go on without it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS hashes (key TEXT PRIMARY KEY, sha256 TEXT)")
                yield database
        except (sqlite3.OperationalError, OSError) as error:
            raise _Unusable from error
        except sqlite3.DatabaseError as error:
            self.path.unlink(missing_ok=True)
            raise _Unusable from error


class _Unusable(Exception):
    """The database cannot be used: hash again."""


def _of_mask(mask: Mask) -> str:
    try:
        return hashlib.sha256(mask.content()).hexdigest()
    except OSError as error:
        raise unreadable(mask.name, error) from error
