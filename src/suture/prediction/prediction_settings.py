"""Options of a prediction, validated without importing torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suture.core.errors import UserError
from suture.core.io import validate_folder_path
from suture.data.dataset import VideosBy
from suture.data.datasets.folder import require_outside_dataset
from suture.data.listing import holds_files
from suture.data.overlay import PLAIN_STYLE, OverlayStyle
from suture.data.video_index import JOURNAL, RECORD
from suture.data.view import View
from suture.prediction.frame_table import TableFormat

MaskFormat = Literal["png", "video", "none"]
ViewSetting = View | Literal["trained", "auto"] | None


@dataclass(frozen=True)
class PredictionSettings:
    """Files that are written for each clip, and the view of its frames."""

    masks: MaskFormat = "png"
    overlay: bool = True
    table: TableFormat = "csv"
    view: ViewSetting = "trained"
    smooth: float = 0.0
    """Weight of the previous frame (see `Smoother`); 0 is none."""
    videos_by: VideosBy | Literal["trained"] = "trained"
    style: OverlayStyle = PLAIN_STYLE
    start: float = 0.0
    """Second of a video at which the prediction begins."""
    end: float | None = None
    """Second of a video before which it ends; None is the end of the file."""
    every: int = 1
    """Predict every n-th frame."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.start < 0 or (self.end is not None and self.end <= self.start):
            raise UserError("Expected --every from 1, and --start and --end in rising seconds.")
        if not 0 <= self.style.opacity <= 1 or (self.style.outline or 0) < 0:
            raise UserError("Expected --opacity from 0 to 1, and --outline in pixels from 0.")
        if not 0 <= self.smooth < 1:
            raise UserError(f"smooth is {self.smooth}, expected a number from 0 to below 1.")

    def to_json(self) -> dict[str, Any]:
        """All but view and grouping, which the model may decide."""
        frames = {"start": self.start, "end": self.end, "every": self.every}
        files = {"masks": self.masks, "overlay": self.overlay, "table": self.table, "style": list(self.style)}
        return {**files, **frames, "smooth": self.smooth}


def parse_view(value: str) -> ViewSetting:
    """Parse the option `--view`: trained, auto, none, or x,y,w,h.

    >>> parse_view("0,40,1280,944")
    View(x=0, y=40, width=1280, height=944, circle=None)
    """
    if value in ("trained", "auto"):
        return "auto" if value == "auto" else "trained"
    if value == "none":
        return None
    numbers = value.split(",")
    if len(numbers) != 4 or not all(part.strip().isdecimal() for part in numbers):
        raise UserError(f"--view is {value}, expected trained, auto, none or x,y,w,h in pixels.")
    return View.parse([int(part) for part in numbers], "--view")


def validate_output_folder(out: Path) -> None:
    """Raise if a folder holds files other than results of predictions."""
    validate_folder_path(out)
    require_outside_dataset(out)
    if holds_files(out) and not any((clip / name).exists() for clip in out.iterdir() for name in (RECORD, JOURNAL)):
        raise UserError(
            f"{out} holds files but no results of a prediction, expected a new or empty folder, or one with such "
            "results: give another."
        )
