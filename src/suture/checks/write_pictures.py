"""Pictures of each video's view, of its masks, and of its shots as a curve with the cuts."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np

from suture.core.errors import UserError
from suture.core.io import replacing
from suture.data.dataset import Dataset, Video, WrongMask
from suture.data.datasets.folder import require_outside_dataset
from suture.data.draw_shots import draw_shots
from suture.data.overlay import paint_mask
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
    """Write `VIDEO-view.png`, `VIDEO-shots.png` and, if it has masks, `VIDEO-masks.png`; return their paths."""
    require_free_folder(out)
    written = []
    for video in dataset:
        if video.usable:
            middle = video.usable[len(video.usable) // 2]
            drawn = outline_view(video.read(middle), video.view)
            written.append(_write(out / f"{video.id}-view.png", drawn))
            with suppress(WrongMask):  # a finding of the check
                if painted := list(_painted_frames(dataset, video)):
                    written.append(_write(out / f"{video.id}-masks.png", np.hstack(painted)))
            figure = draw_shots(video, find_shots(video), video.with_mask)
            written.append(out / f"{video.id}-shots.png")
            with replacing(written[-1]) as temporary:
                figure.savefig(temporary, dpi=110)
        progress(1)
    return written


def _write(path: Path, pixels: np.ndarray) -> Path:
    with replacing(path) as temporary:
        cv2.imwrite(str(temporary), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return path


def _painted_frames(dataset: Dataset, video: Video) -> Iterator[np.ndarray]:
    """Paint the masks of a few frames over them: swapped or shifted masks are seen at once."""
    labelled = video.with_mask
    for index in sorted({labelled[round(part * (len(labelled) - 1))] for part in (0, 0.5, 1)} if labelled else ()):
        mask = dataset.read_mask(video, index)
        if mask.shape == (video.size[1], video.size[0]):
            yield paint_mask(video.read(index), mask, dataset.classes.palette)
