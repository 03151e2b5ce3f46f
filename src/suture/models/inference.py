"""Frames to class probabilities, and class probabilities to masks.

Validation, pseudo labels, reports, prediction and export all use these functions, so what is scored is what is
deployed.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache, partial
from math import gcd

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from suture.models.sliding_window import slide_window

Size = tuple[int, int]
"""Height and width."""


@torch.no_grad()
def predict_probabilities(
    network: nn.Module,
    frames: Tensor,
    size: Size,
    *,
    flip: Sequence[int] | None = None,
    scales: Sequence[float] = (1.0,),
    window: bool = False,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Predict the class probabilities of frames.

    Args:
        network: Maps images (B, 3, h, w) in 0..1 to logits (B, C, h, w).
        frames: The view of frames, (B, H, W, 3), RGB, uint8, on the network's device.
        size: Height and width of the network's input.
        flip: Order of the classes in mirrored frames, to average with their predictions. None skips them.
        scales: Average over these sizes of the frames.
        window: Slide windows of `size` over frames that are larger, instead of shrinking them.
        autocast: Precision of the network; None is that of its weights.

    Returns:
        (B, C, h, w), float32, at the size of the network's input.
    """
    images = to_images(frames, input_size(frames.shape[1:3], size, window))
    predict = partial(_average_probabilities, network, flip=flip, scales=scales, autocast=autocast)
    return slide_window(predict, images, size) if window else predict(images)


def _average_probabilities(
    network: nn.Module,
    images: Tensor,
    *,
    flip: Sequence[int] | None,
    scales: Sequence[float],
    autocast: torch.dtype | None,
) -> Tensor:
    size = images.shape[-2:]
    total: Tensor | None = None
    for scale in scales:
        # Resized to a size: a factor that does not divide the side would cut off the last part of a pixel.
        sides = [max(1, round(side * scale)) for side in size]
        scaled = images if scale == 1 else F.interpolate(images, sides, mode="bilinear", antialias=True)
        for mirrored in (False, True) if flip is not None else (False,):
            with torch.autocast(images.device.type, autocast, enabled=autocast is not None):
                logits = network(scaled.flip(-1) if mirrored else scaled).float()
            if scale != 1:
                logits = F.interpolate(logits, size, mode="bilinear", align_corners=False)
            if mirrored:
                logits = _mirrored(logits, flip or ())
            probabilities = logits.softmax(1)
            total = probabilities if total is None else total + probabilities
    assert total is not None
    return total / (len(scales) * (1 if flip is None else 2))


def _mirrored(logits: Tensor, order: Sequence[int]) -> Tensor:
    """Mirror logits back; a channel after the classes, for ignored pixels, stays."""
    if [*order] != sorted(order):
        logits = torch.stack([logits[:, number] for number in (*order, *range(len(order), logits.shape[1]))], 1)
    return logits.flip(-1)


def input_size(frame: Sequence[int], size: Size, window: bool = False) -> Size:
    """Input size of a network: its own, or with windows at least the size of the frame."""
    return (max(size[0], frame[0]), max(size[1], frame[1])) if window else size


def inference_network(segmenter: nn.Module, size: Size) -> nn.Module:
    """Prepare a segmenter for inference: channels last; on the CPU a copy with its batch norms folded.

    On a GPU a bias to add takes longer than a batch norm (benchmarks/folded.py).
    """
    from suture.models.fold_batch_norms import fold_batch_norms  # here, because ONNX files need none of their libraries
    from suture.models.segmenter import Segmenter

    if isinstance(segmenter, Segmenter) and next(segmenter.parameters()).device.type == "cpu":
        segmenter = deepcopy(segmenter).eval()
        fold_batch_norms(segmenter, torch.zeros(1, 3, *size))
    return segmenter.to(memory_format=torch.channels_last)


def to_images(frames: Tensor, size: Sequence[int]) -> Tensor:
    """Turn frames (B, H, W, 3), uint8, into images (B, 3, h, w) in 0..1 of a size, on the frames' device."""
    height, width = size
    if frames.device.type == "cpu" and frames.shape[1:3] != (height, width):
        frames = torch.from_numpy(np.stack([resize_frame(frame.numpy(), (height, width)) for frame in frames]))
    return resize_by_matrix(frames, (height, width)).contiguous(memory_format=torch.channels_last)


def resize_frame(frame: np.ndarray, size: Size) -> np.ndarray:
    """Resize a frame (H, W, 3) with OpenCV, the fastest way on a CPU: averaged over areas where it shrinks."""
    if frame.shape[:2] == tuple(size):
        return frame
    shrinks = frame.shape[0] >= size[0] and frame.shape[1] >= size[1]
    return cv2.resize(frame, size[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def resize_by_matrix(frames: Tensor, size: Size) -> Tensor:
    """Resize frames (B, H, W, 3) to images (B, 3, h, w) in 0..1 by operations that every ONNX runtime has.

    Equal to `resize_frame` up to one step of a byte (1/255).

    >>> resize_by_matrix(torch.zeros(1, 1080, 1920, 3, dtype=torch.uint8), (256, 256)).shape
    torch.Size([1, 3, 256, 256])
    """
    images = frames.float()
    if frames.shape[1:3] == tuple(size):
        return images.permute(0, 3, 1, 2) / 255
    batch, height, width, _ = frames.shape
    rows, columns = resize_matrices((height, width), size, frames.device)
    # Rows first, in the order of the bytes: little is left to be moved into planes then.
    images = rows @ images.reshape(batch, height // rows.shape[1], rows.shape[1], width * 3)
    images = images.reshape(batch, size[0], width, 3).permute(0, 3, 1, 2)
    images = images.reshape(batch, 3, size[0], width // columns.shape[1], columns.shape[1]) @ columns.T
    # Whole bytes, as the network was trained on: otherwise one pixel in a thousand of a mask changes.
    return images.reshape(batch, 3, *size).round() / 255


def resize_matrices(before: Size, after: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Matrices that resize height and width; cached."""
    shrinks = before[0] >= after[0] and before[1] >= after[1]
    # A tensor that is made while a graph is traced belongs to that graph and must not be cached.
    make = _make_matrix if torch.compiler.is_compiling() else _cached_matrix
    rows, columns = (make(*sides, shrinks, device) for sides in zip(before, after, strict=True))
    return rows, columns


def _make_matrix(before: int, after: int, shrinks: bool, device: torch.device) -> Tensor:
    """Make the matrix (after, before) that resizes one side; of a block-diagonal one, a single block."""
    blocks = gcd(before, after) if shrinks else 1
    before, after = before // blocks, after // blocks
    pixels = np.arange(before)
    if shrinks:  # the mean of the pixels that each new one covers, as cv2.INTER_AREA
        edges = np.arange(after + 1) * (before / after)
        covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
        matrix = covered.clip(0) * (after / before)
    else:  # between the centres of two pixels, as cv2.INTER_LINEAR
        centres = ((np.arange(after) + 0.5) * (before / after) - 0.5).clip(0, before - 1)
        matrix = (1 - np.abs(centres[:, None] - pixels)).clip(0)
    return torch.from_numpy(matrix.astype(np.float32)).to(device)


_cached_matrix = lru_cache(maxsize=64)(_make_matrix)


def to_class_ids(probabilities: Tensor, size: Size) -> Tensor:
    """Return the most probable class of each pixel at a size, bilinear between the network's pixels.

    Args:
        probabilities: (B, C, h, w).
        size: Height and width of the view in the frame.

    Returns:
        (B, H, W), uint8.
    """
    if probabilities.device.type == "cpu" and probabilities.shape[-2:] != tuple(size):
        return torch.from_numpy(np.stack([_resized_class_ids(one.numpy(), size) for one in probabilities]))
    # One by one: at native resolution the scores of a batch would fill the memory.
    return torch.cat([interpolate_class_ids(one[None], size) for one in probabilities])


def interpolate_class_ids(
    scores: Tensor,
    size: Size,
    around: tuple[int, int, int, int] | None = None,
    ignore: int = 255,
    inside: Tensor | None = None,
) -> Tensor:
    """Same as `to_class_ids`, by operations that every ONNX runtime has.

    `around` adds pixels with the id `ignore` on the left, right, top and bottom: the frame outside the view. Pixels
    that are not `inside` (H, W) get this id too.
    """
    if scores.shape[-2:] != tuple(size):
        scores = F.interpolate(scores, tuple(size), mode="bilinear", align_corners=False)
    ids = scores.argmax(1).float()  # TensorRT takes bytes only from floats, and only in the last step
    if inside is not None:
        ids = ids.masked_fill(~inside.to(ids.device), ignore)
    if around is not None:
        ids = F.pad(ids, around, value=ignore)
    return ids.to(torch.uint8)


def _resized_class_ids(scores: np.ndarray, size: Size) -> np.ndarray:
    """Compare class after class with OpenCV, several times as fast on a CPU as all classes at once."""
    # Between four pixels, a class's score is between its lowest and highest score there: most classes drop out.
    square = np.ones((2, 2), np.uint8)
    floor = np.max([cv2.erode(one, square) for one in scores], axis=0)
    first, *others = [number for number, one in enumerate(scores) if (cv2.dilate(one, square) >= floor).any()]
    best, other = np.empty((2, *size), np.float32)
    ids, number, wins = np.empty((3, *size), np.uint8)
    cv2.resize(scores[first], size[::-1], dst=best, interpolation=cv2.INTER_LINEAR)
    ids.fill(first)
    for candidate in others:
        cv2.resize(scores[candidate], size[::-1], dst=other, interpolation=cv2.INTER_LINEAR)
        cv2.compare(other, best, cv2.CMP_GT, dst=wins)
        cv2.max(other, best, dst=best)
        number.fill(candidate)
        cv2.copyTo(number, wins, ids)
    return ids
