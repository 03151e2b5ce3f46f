"""Painting tools of generated video: noise, smooth steps, blur, lines."""

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# OpenCV's stubs promise no element type, so these names say it.
Image = NDArray[Any]  # uint8
Floats = NDArray[Any]  # float32
Point = NDArray[Any]  # float64: x and y


def noise(rng: np.random.Generator, shape: tuple[int, int], cell: float, octaves: int = 4) -> Floats:
    """Smooth noise with features of `cell` pixels and finer ones; mean 0, standard deviation 1."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.5)
        grid = rng.standard_normal((math.ceil(height / size) + 3, math.ceil(width / size) + 3)).astype(np.float32)
        scaled = cv2.resize(grid, None, fx=size, fy=size, interpolation=cv2.INTER_CUBIC)
        total += scaled[int(size) :, int(size) :][:height, :width] / 2**octave
    return (total - total.mean()) / (total.std() + 1e-6)


def step(low: float, high: float, x: Any) -> Any:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def centered_grid(shape: tuple[int, int], unit: float) -> tuple[Floats, Floats]:
    """Coordinates x and y of every pixel from the centre, in units."""
    ys, xs = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    return (xs - shape[1] / 2) / unit, (ys - shape[0] / 2) / unit


def draw_line(image: Image, points: Point | Sequence[Point], unit: float, width: float) -> None:
    """Draw a line through points, given in units from the centre; `width` is in pixels."""
    center = np.array([image.shape[1], image.shape[0]]) / 2
    line = np.round((np.array(points) * unit + center) * 16).astype(np.int32)
    cv2.polylines(image, [line], False, 255, max(1, round(width)), cv2.LINE_AA, shift=4)


def blur(image: Floats, sigma: float) -> Floats:
    return cv2.GaussianBlur(image, (0, 0), max(sigma, 0.3), borderType=cv2.BORDER_REFLECT_101)


def mix(image: Floats, color: Sequence[float] | Floats, weight: Floats) -> None:
    """Paint over an image (H W 3) in place, by a weight of each pixel."""
    image += weight[..., None] * (np.asarray(color, np.float32) - image)
