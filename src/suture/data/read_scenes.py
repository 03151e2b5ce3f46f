"""The scene as a segmenter sees it: the view of a frame at the segmenter's size, and the way back to the frame."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.dataset import Video


def resize_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """An image at height × width, averaged where it shrinks."""
    if image.shape[:2] == size:
        return image
    smaller = image.shape[0] >= size[0] and image.shape[1] >= size[1]
    return cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)


def read_scene(video: Video, index: int, size: tuple[int, int] | None = None) -> np.ndarray:
    """Read the view of one frame, resized to height × width if a size is given."""
    view = video.view.crop(video.read(index))
    return resize_image(view, size) if size else view


def read_scenes(
    video: Video, indices: Sequence[int], size: tuple[int, int] | None, batch: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Frames in batches (indices, B H W 3), the next batch being decoded while this one is used."""
    parts = [list(indices[start : start + batch]) for start in range(0, len(indices), batch)]
    # A video file is one decoder that goes forward; image files decode side by side.
    with ThreadPoolExecutor(1 if video.file else 4) as pool:

        def submit(part: list[int]) -> list[Future[np.ndarray]]:
            return [pool.submit(read_scene, video, index, size) for index in part]

        ahead = submit(parts[0]) if parts else []
        for number, part in enumerate(parts):
            current, ahead = ahead, submit(parts[number + 1]) if number + 1 < len(parts) else []
            yield part, np.stack([future.result() for future in current])


def paste_in_frame(ids: np.ndarray, video: Video) -> np.ndarray:
    """Class ids of the view's rectangle put back into the frame; `IGNORE` outside the view."""
    width, height = video.size
    view = video.view
    frame = np.full((height, width), IGNORE, np.uint8)
    view.crop(frame)[:] = ids
    return np.where(view.mask(width, height), frame, IGNORE).astype(np.uint8) if view.circle else frame
