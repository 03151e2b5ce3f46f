"""Options of `suture export`, validated without importing torch."""

from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.data.datasets.folder import require_outside_dataset
from suture.data.images import MAX_PIXELS
from suture.data.view import View


def validate_export_options(
    output: Path, frame: tuple[int, int] | None, view: View | None, *, dynamic: bool, logits: bool
) -> None:
    """Raise if an ONNX file cannot have these options, or cannot be written to `output`."""
    if suffix_of(output) != ".onnx":
        raise UserError(f"--output is {output}, expected a name that ends in .onnx, or in .md for the card alone.")
    if dynamic and (frame or view):
        raise UserError("--dynamic leaves the size of the frames open: leave --frame and --view out.")
    if frame and frame[0] * frame[1] > MAX_PIXELS:
        raise UserError(f"--frame is {frame[1]}x{frame[0]}, expected at most {MAX_PIXELS // 2**20} million pixels.")
    if view and logits:
        raise UserError("--logits has no pixels outside a view: leave --view out, and crop the frames yourself.")
    if view and not (frame and view.is_within(frame[1], frame[0])):
        raise UserError(f"--view is {view}, expected a rectangle within the frames of --frame WIDTHxHEIGHT.")
    require_outside_dataset(output)


def require_new_or_same(path: Path, content: bytes, force: bool) -> None:
    """Raise if a file is there already, unless with the same content."""
    if path.exists() and not force and path.read_bytes() != content:
        raise UserError(f"{path} is there already: give an --output in another folder, or --force to write over it.")
