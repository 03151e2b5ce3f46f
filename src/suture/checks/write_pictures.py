"""Pictures of each video's view, and of its shots as a curve with the cuts."""

from collections.abc import Callable
from pathlib import Path

import cv2

from suture.core.errors import UserError
from suture.core.io import replacing
from suture.data.dataset import Dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.draw_shots import draw_shots
from suture.data.shots import find_shots
from suture.data.view import outline_view


def require_free_folder(out: Path) -> None:
    """Raise unless a folder for pictures is new or empty, and outside of any dataset."""
    require_outside_dataset(out, pictures=True)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there and not an empty folder: give a new one for the pictures.")


def write_pictures(
    dataset: Dataset,
    out: Path,
    progress: Callable[[int], None] = lambda videos: None,
) -> list[Path]:
    """Write `VIDEO-view.png` and `VIDEO-shots.png` for every video; return their paths."""
    require_free_folder(out)
    written = []
    for video in dataset:
        if video.usable:
            middle = video.usable[len(video.usable) // 2]
            drawn = outline_view(video.read(middle), video.view)
            written.append(out / f"{video.id}-view.png")
            with replacing(written[-1]) as temporary:
                cv2.imwrite(str(temporary), cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR))
            figure = draw_shots(video, find_shots(video), video.with_mask)
            written.append(out / f"{video.id}-shots.png")
            with replacing(written[-1]) as temporary:
                figure.savefig(temporary, dpi=110)
        progress(1)
    return written
