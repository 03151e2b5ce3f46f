"""The journal of a clip that is being predicted."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from suture.core.errors import UserError
from suture.core.io import parse_json, replacing, require_regular_file


class Journal:
    """Rows of finished frames in a file that survives a kill: one line each, the last may be torn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def made_of(self) -> Any:
        """Read the settings of the prediction; None if there is no journal."""
        return next(self._lines(), None)

    def read(self, made_of: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Read rows by frame; none if there is no journal, or one of other settings."""
        lines = self._lines()
        rows = lines if next(lines, None) == made_of else ()
        return {row["frame"]: row for row in rows if isinstance(row, dict) and "frame" in row}

    def _lines(self) -> Iterator[Any]:
        if not self.path.exists():
            return
        require_regular_file(self.path)
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield parse_json(line, str(self.path))
            except UserError:
                return

    def begin(self, made_of: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Start a file with the rows of earlier starts."""
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in [made_of, *rows]), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows."""
        assert self._file is not None
        self._file.write("".join(json.dumps(row) + "\n" for row in rows))
        self._file.flush()

    @property
    def is_open(self) -> bool:
        """True after `begin`."""
        return self._file is not None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None
