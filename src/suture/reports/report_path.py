"""Path of a report, validated before PyTorch is imported."""

from collections.abc import Sequence
from pathlib import Path

from suture.core.errors import UserError
from suture.data.datasets.folder import require_outside_dataset


def report_path(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Return `out`, or `report.html` in the run folder, or for several runs in the folder above the first.

    Raises:
        UserError: The path is a folder, or lies among the files of a dataset.
    """
    folder = Path(runs[0])
    path = out or (folder if len(runs) == 1 else folder.parent) / "report.html"
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the report a file name, such as {path / 'report.html'}.")
    require_outside_dataset(path)
    return path
