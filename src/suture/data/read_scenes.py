"""Scenes as a segmenter sees them: the view of a frame at the segmenter's size, and the way back to the frame."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.dataset import Video

MaskSource = Callable[[Video, Sequence[int]], Iterator[tuple[int, np.ndarray]]]
"""Makes the masks of frames of a video: index and class ids (H, W), `IGNORE` outside the view."""


def resize_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to height × width, averaging where it shrinks."""
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
    """Read frames in batches of (indices, B H W 3); the next batch is decoded while this one is used."""
    # A video file is one decoder that goes forward; image files decode side by side.
    with ThreadPoolExecutor(1 if video.file else 4) as pool:
        pending: deque[tuple[list[int], list[Future[np.ndarray]]]] = deque()
        for start in range(0, len(indices), batch):
            part = list(indices[start : start + batch])
            pending.append((part, [pool.submit(read_scene, video, index, size) for index in part]))
            if len(pending) == 2:
                yield _stack(*pending.popleft())
        if pending:
            yield _stack(*pending.popleft())


def _stack(indices: list[int], scenes: list[Future[np.ndarray]]) -> tuple[list[int], np.ndarray]:
    return indices, np.stack([scene.result() for scene in scenes])


def resize_into_frame(ids: np.ndarray, video: Video) -> np.ndarray:
    """Resize class ids of the view and paste them into the whole frame."""
    size = (video.view.width, video.view.height)
    return paste_in_frame(cv2.resize(ids, size, interpolation=cv2.INTER_NEAREST_EXACT), video)


def paste_in_frame(ids: np.ndarray, video: Video) -> np.ndarray:
    """Put class ids of the view's rectangle back into the frame, with `IGNORE` outside the view."""
    width, height = video.size
    view = video.view
    frame = np.full((height, width), IGNORE, np.uint8)
    view.crop(frame)[:] = ids
    return np.where(view.mask(width, height), frame, IGNORE).astype(np.uint8) if view.circle else frame
