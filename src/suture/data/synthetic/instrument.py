"""The instruments of generated video: rigid parts, drawn where their joints are at a time."""

import math

import numpy as np

from suture.data.synthetic.paint import Floats, Image, Point, mix, step
from suture.data.synthetic.scenario import CLASPER, SHAFT, WRIST

ENTERING_S = 1.0
"""Time (s) an instrument takes to come in or to go out."""


class Instrument:
    """An articulated instrument: a shaft through a trocar, a wrist and two jaws, each moving with time.

    Args:
        rng: Its form and movement.
        angle: Direction of its trocar from the centre.
        begin: Time (s) of the shot's first frame.
        seconds: Length of the shot.
        stays: It is there until the end of the shot.
    """

    def __init__(self, rng: np.random.Generator, angle: float, begin: float, seconds: float, stays: bool) -> None:
        direction = np.array([math.cos(angle), math.sin(angle)])
        self.radius = rng.uniform(0.044, 0.06)
        self.reach = rng.uniform(0.12, 0.17)
        self.wrist = 2.4 * self.radius
        self.shade = float(rng.choice([0.07, 0.09, 0.5]))
        self.pivot: Point = 1.3 * direction
        self.work: Point = direction * rng.uniform(0.2, 0.34) + rng.uniform(-0.08, 0.08, 2)
        self.rates = rng.uniform(0.5, 2.0, 4)
        self.phases = rng.uniform(0, math.tau, 6)
        there_at_first = rng.random() < (0.9 if stays else 0.45)
        self.enter = begin + (-ENTERING_S if there_at_first else rng.uniform(0.1, 0.6) * seconds)
        self.leave = math.inf if stays or rng.random() < 0.5 else begin + rng.uniform(0.7, 0.95) * seconds

    def pose(self, time: float) -> tuple[Point, float, float]:
        """Position of the wrist's joint, and the angles of shaft and wrist."""
        sway = np.sin(self.rates * time * (1, 1, 2.2, 2.2) + self.phases[:4])
        there = self.work + 0.065 * sway[:2] + 0.035 * sway[2:]
        inwards = (there - self.pivot) / np.linalg.norm(there - self.pivot)
        away = 1 - step(0, ENTERING_S, time - self.enter) * (1 - step(0, ENTERING_S, time - self.leave))
        shaft = math.atan2(inwards[1], inwards[0])
        return there - 1.1 * away * inwards, shaft, shaft + 0.5 * math.sin(0.8 * time + self.phases[4])

    def jaws(self, time: float) -> Point:
        """The point between the tips of the jaws."""
        tip, _, wrist = self.pose(time)
        return tip + (self.wrist + 0.85 * self.reach) * np.array([math.cos(wrist), math.sin(wrist)])

    def draw(self, picture: Floats, classes: Image, light: Floats, grid: tuple[Floats, Floats], time: float) -> None:
        """Lay the instrument over the picture and its classes over the mask."""
        tip, shaft, wrist = self.pose(time)
        joint = tip + self.wrist * np.array([math.cos(wrist), math.sin(wrist)])
        opening = 0.25 * (1 + math.sin(2.5 * time + self.phases[5]))

        def lay(at: Point, angle: float, length: float, edges: tuple[float, float], shade: float, value: int) -> None:
            cos, sin = math.cos(angle), math.sin(angle)
            near = 2 * self.radius  # only pixels near the part are drawn
            (left, right), (top, bottom) = (sorted((p, p + length * d)) for p, d in zip(at, (cos, sin), strict=True))
            rows = slice(*np.searchsorted(grid[1][:, 0], (top - near, bottom + near)))
            part = rows, slice(*np.searchsorted(grid[0][0], (left - near, right + near)))
            x, y = grid[0][part] - float(at[0]), grid[1][part] - float(at[1])
            along, across = x * cos + y * sin, y * cos - x * sin
            outline = np.sqrt(1 - np.clip(along / length, 0, 1) ** 4)
            low, high = edges[0] * outline, edges[1] * outline
            ends = np.minimum(along + 0.3 * self.radius, length - along)
            inside = np.minimum(np.minimum(across - low, high - across), ends)
            mix(picture[part], (0, 0, 0), 0.35 * step(-0.05, 0.02, inside))  # a soft shadow
            # A brushed metal cylinder that is lit from the camera.
            place = np.clip(2 * (across - low) / np.maximum(high - low, 1e-3) - 1, -1, 1)
            gleam = np.exp(-(((place + 0.3) / 0.16) ** 2)) * (0.2 + 0.4 * shade)
            metal = (shade * (0.25 + 0.75 * np.sqrt(1 - place**2)) + gleam) * np.minimum(light[part], 1.15)
            pixel = 0.5 * float(grid[0][0, 1] - grid[0][0, 0])
            weight = step(-pixel, pixel, inside)
            mix(picture[part], metal[..., None] * np.array([0.94, 0.97, 1.0], np.float32), weight)
            classes[part][weight > 0.5] = value

        for side in (-1, 1):
            edges = sorted((-0.05 * side * self.radius, 0.8 * side * self.radius))
            lay(joint, wrist + side * opening, self.reach, (edges[0], edges[1]), 0.7, CLASPER)
        lay(tip, wrist, 1.2 * self.wrist, (-0.85 * self.radius, 0.85 * self.radius), 0.6, WRIST)
        lay(tip, shaft + math.pi, 3.0, (-1.1 * self.radius, 1.1 * self.radius), self.shade, SHAFT)
