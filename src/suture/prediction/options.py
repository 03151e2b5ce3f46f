"""What a prediction or an export is asked for: slips are told here, before PyTorch is imported or a model is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suture.core.errors import UserError
from suture.core.io import suffix_of, validate_folder_path
from suture.data.dataset import VideosBy
from suture.data.datasets.folder import require_outside_dataset
from suture.data.images import MAX_PIXELS
from suture.data.listing import holds_files
from suture.data.video_index import JOURNAL, RECORD
from suture.data.view import View
from suture.prediction.outputs import Masks, Table

ViewSetting = View | Literal["trained", "auto"] | None


@dataclass(frozen=True)
class Settings:
    """What is written of each clip, and how its frames are looked at."""

    masks: Masks = "png"
    overlay: bool = True
    table: Table = "csv"
    view: ViewSetting = "trained"
    smooth: float = 0.0
    """How much of the frame before is carried over (`Smoother`); 0 is nothing."""
    videos_by: VideosBy | Literal["trained"] = "trained"

    def __post_init__(self) -> None:
        if not 0 <= self.smooth < 1:
            raise UserError(f"smooth is {self.smooth}, expected a number from 0 to below 1.")

    def to_json(self) -> dict[str, Any]:
        """All but view and videos, which the model may decide."""
        return {"masks": self.masks, "overlay": self.overlay, "table": self.table, "smooth": self.smooth}


def parse_view(said: str) -> ViewSetting:
    """A view as the command line says it: trained, auto, none, or x,y,w,h.

    >>> parse_view("0,40,1280,944")
    View(x=0, y=40, width=1280, height=944, circle=None)
    """
    if said in ("trained", "auto"):
        return "auto" if said == "auto" else "trained"
    if said == "none":
        return None
    try:
        numbers = [int(part) for part in said.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise UserError(f"--view is {said}, expected trained, auto, none or x,y,w,h in pixels.")
    return View.parse(numbers, "--view")


def validate_output_folder(out: Path) -> None:
    """Where the results of a prediction cannot go: among other files they would be mixed up with these."""
    validate_folder_path(out)
    require_outside_dataset(out)
    if holds_files(out) and not any((clip / name).exists() for clip in out.iterdir() for name in (RECORD, JOURNAL)):
        raise UserError(
            f"{out} holds files but no results of a prediction, expected a new or empty folder, or one with such "
            "results: give another."
        )


def validate_export_options(
    output: Path, frame: tuple[int, int] | None, view: View | None, *, dynamic: bool, force: bool
) -> None:
    """An ONNX file that cannot be, or cannot be written there."""
    if suffix_of(output) != ".onnx":
        raise UserError(f"--output is {output}, expected a name that ends in .onnx, or in .md for the card alone.")
    if dynamic and (frame or view):
        raise UserError("--dynamic leaves the size of the frames open: leave --frame and --view out.")
    if view and not frame:
        raise UserError("--view needs --frame: the size of the frames that it is cut out of.")
    if frame and frame[0] * frame[1] > MAX_PIXELS:
        raise UserError(
            f"--frame is {frame[1]}x{frame[0]}, expected the size of a video's frames, {MAX_PIXELS // 2**20} million "
            "pixels at most."
        )
    if view and frame and not view.is_within(frame[1], frame[0]):
        raise UserError(f"--view is {view}, which reaches out of the frame of {frame[1]}×{frame[0]} pixels.")
    require_outside_dataset(output)
    require_new_or_same(output, None, force)


def require_new_or_same(path: Path, content: str | None, force: bool) -> None:
    """Write over another file only by force; the same content is no other."""
    if path.exists() and not force and (content is None or path.read_bytes() != content.encode()):
        raise UserError(f"{path} is there already: give an --output in another folder, or --force to write over it.")
