"""Where a report goes: a slip is told here, before the report imports PyTorch."""

from collections.abc import Sequence
from pathlib import Path

from suture.data.sources.folder import refuse_among_data
from suture.errors import UserError


def report_path(runs: Sequence[Path], out: Path | None = None) -> Path:
    """`out`; else `report.html`, for one run in its folder, for several in the folder above the first."""
    folder = Path(runs[0])
    path = out or (folder if len(runs) == 1 else folder.parent) / "report.html"
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the report a file name, such as {path / 'report.html'}.")
    refuse_among_data(path)
    return path
