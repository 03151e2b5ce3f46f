"""The instruments of generated video: drawn once in parts, then moved by their joints."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from suture.data.synthetic.paint import EXPOSURE, Floats, Image, Point, ease, smear
from suture.data.synthetic.scenario import CLASPER, ENTERING, OUTSIDE, SHAFT, WRIST, SyntheticVideo, Tool


class _Sprite(NamedTuple):
    """Image of a rigid part of an instrument: colour times opacity and opacity, and the place of its joint."""

    rgba: Image
    joint: tuple[float, float]
    value: int


class Instrument:
    """An articulated instrument: a shaft through a trocar, a wrist and two jaws, each moving with time."""

    def __init__(self, tool: Tool, video: SyntheticVideo):
        rng = np.random.default_rng([*tool.seed, 7])
        settings, look = video.settings, video.look
        self.tool = tool
        self.size = np.array([settings.width, settings.height])
        self.unit = min(settings.width, settings.height)
        self.radius = rng.uniform(0.044, 0.06) * math.sqrt(look.zoom)
        self.reach = {"grasper": 0.17, "scissors": 0.14, "driver": 0.12}[tool.kind] * math.sqrt(look.zoom)
        self.wrist = 2.4 * self.radius
        direction = np.array([math.cos(tool.angle), math.sin(tool.angle)])
        self.pivot: Point = direction * rng.uniform(1.15, 1.5)
        self.work: Point = direction * rng.uniform(0.2, 0.34) + rng.uniform(-0.08, 0.08, 2)
        self.rates = rng.uniform(0.08, 0.32, 4)
        self.phases = rng.uniform(0, math.tau, 6)
        self.bend = rng.uniform(-0.5, 0.5)
        self.parts = self._shaft(look.shaft), self._wrist(), self._jaw(tool.kind, 1), self._jaw(tool.kind, -1)

    def _reach_for(self, time: float) -> tuple[Point, Point]:
        """Position of the wrist's joint with the shaft, and the direction from the trocar to it."""
        wander = [
            0.065 * math.sin(math.tau * self.rates[i] * time + self.phases[i])
            + 0.035 * math.sin(math.tau * self.rates[i + 2] * 2.2 * time + self.phases[i + 2])
            for i in range(2)
        ]
        there = self.work + wander
        inside = ease((time - self.tool.enter) / ENTERING) * (1 - ease((time - self.tool.leave) / ENTERING))
        inwards = (there - self.pivot) / np.linalg.norm(there - self.pivot)
        return there - inwards * 1.1 * (1 - inside), inwards

    def pose(self, time: float) -> tuple[Point, float, float, float]:
        """Position of the wrist's joint, angles of shaft and wrist, and opening of the jaws."""
        tip, inwards = self._reach_for(time)
        shaft = math.atan2(inwards[1], inwards[0])
        bend = self.bend + 0.3 * math.sin(math.tau * 0.17 * time + self.phases[4])
        opening = 0.32 * (1 + math.sin(math.tau * 0.4 * time + self.phases[5]))
        return tip, shaft, shaft + bend, 0.06 if self.tool.kind == "driver" else opening

    def jaws(self, time: float) -> Point:
        """The point between the tips of the jaws."""
        tip, _, wrist, _ = self.pose(time)
        return tip + (self.wrist + 0.85 * self.reach) * np.array([math.cos(wrist), math.sin(wrist)])

    def draw(self, picture: Floats, classes: Image, light: Floats, time: float) -> None:
        """Lay the instrument over the picture and its classes over the mask."""
        tip, shaft, wrist, opening = self.pose(time)
        joint = tip + self.wrist * np.array([math.cos(wrist), math.sin(wrist)])
        layer = np.zeros((*classes.shape, 4), np.float32)
        values = np.full(classes.shape, OUTSIDE, np.uint8)
        poses = (tip, shaft), (tip, wrist), (joint, wrist + opening), (joint, wrist - opening)
        for i in (3, 2, 1, 0):  # the jaws lie under the wrist, the wrist under the shaft
            self._place(layer, values, self.parts[i], *poses[i])
        known = values != OUTSIDE
        x, y, w, h = cv2.boundingRect(known.astype(np.uint8))
        if w == 0:
            return
        classes[known] = values[known]
        velocity = (tip - self._reach_for(time - EXPOSURE)[0]) * self.unit
        reach = math.ceil(np.abs(velocity).max())
        part = np.s_[max(y - reach, 0) : y + h + reach, max(x - reach, 0) : x + w + reach]
        smeared = smear(layer[part], velocity)
        picture[part] *= 1 - smeared[..., 3:]
        picture[part] += smeared[..., :3] * np.minimum(light[part], 1.15)[..., None]

    def _place(self, layer: Floats, classes: Image, part: _Sprite, at: Point, angle: float) -> None:
        cos, sin = math.cos(angle), math.sin(angle)
        x, y = at * self.unit + self.size / 2
        jx, jy = part.joint
        height, width = part.rgba.shape[:2]
        matrix = np.array([[cos, -sin, x - cos * jx + sin * jy], [sin, cos, y - sin * jx - cos * jy]])
        corners = matrix @ np.array([[0, width, width, 0], [0, 0, height, height], [1, 1, 1, 1]])
        left, top = np.maximum(np.floor(corners.min(1)).astype(int) - 1, 0)
        right, bottom = np.minimum(np.ceil(corners.max(1)).astype(int) + 2, self.size)
        if left >= right or top >= bottom:
            return
        matrix[:, 2] -= left, top
        warped = cv2.warpAffine(part.rgba, matrix, (int(right - left), int(bottom - top)), flags=cv2.INTER_LINEAR)
        patch = warped.astype(np.float32) / 255
        target = layer[top:bottom, left:right]
        target *= 1 - patch[..., 3:]
        target += patch
        classes[top:bottom, left:right][patch[..., 3] > 0.5] = part.value

    def _sprite(self, left: float, right: float, half: float) -> tuple[Floats, Floats, tuple[float, float]]:
        """Coordinates of a sprite's pixels (x along, y across, in units of the frame), and its origin."""
        xs = np.arange(math.floor(left * self.unit), math.ceil(right * self.unit) + 1, dtype=np.float32)
        ys = np.arange(math.floor(-half * self.unit), math.ceil(half * self.unit) + 1, dtype=np.float32)
        x, y = np.meshgrid(xs / self.unit, ys / self.unit)
        return x, y, (-float(xs[0]), -float(ys[0]))

    def _finish(self, color: Floats, inside: Floats, joint: tuple[float, float], value: int) -> _Sprite:
        alpha = np.clip(0.5 + inside * self.unit, 0, 1)[..., None]
        rgba = np.concatenate([np.clip(color, 0, 1) * alpha, alpha], axis=2)
        return _Sprite((rgba * 255 + 0.5).astype(np.uint8), joint, value)

    def _metal(self, across: Floats, tint: Sequence[float], base: float = 0.6) -> Floats:
        """A brushed metal cylinder lit from the camera; `across` is -1 to 1 from edge to edge."""
        round_ = np.sqrt(np.clip(1 - across**2, 0.02, 1))
        gleam = np.exp(-(((across + 0.3) / 0.16) ** 2)) * 0.55 + np.exp(-(((across - 0.55) / 0.12) ** 2)) * 0.2
        shade = base * (0.25 + 0.75 * round_) + gleam * (0.35 + 0.65 * base)
        return shade[..., None] * np.array(tint, np.float32)

    def _shaft(self, base: float) -> _Sprite:
        x, y, joint = self._sprite(-2.2, 0.0, 2.2 * self.radius)
        half = self.radius * (1 - 0.35 * x)  # nearer to the camera, so wider, towards the trocar
        color = self._metal(y / half, (0.95, 0.98, 1.0), base)
        collar = x > -0.7 * self.radius
        color[collar] = self._metal(y / half, (0.95, 0.96, 1.0), 0.55)[collar]
        color[np.abs(x + 0.72 * self.radius) < 0.008] *= 0.3
        return self._finish(color, np.minimum(half - np.abs(y), -x), joint, SHAFT)

    def _wrist(self) -> _Sprite:
        x, y, joint = self._sprite(-0.3 * self.radius, self.wrist + 0.6 * self.radius, self.radius)
        along = x / self.wrist
        half = self.radius * np.where(along < 0.45, 0.86, 0.66 + 0.1 * np.cos(along * 9))
        color = self._metal(y / half, (0.93, 0.95, 1.0), 0.62)
        color[np.abs(along - 0.45) < 0.04] *= 0.35
        for center in (0.12, 0.95):  # the pins of the two joints
            pin = np.hypot(x - center * self.wrist, y) / self.radius
            color[pin < 0.34] *= 0.35
            color[pin < 0.2] = (0.85, 0.87, 0.92)
        end = self.wrist + 0.45 * self.radius - np.abs(y) ** 2 / self.radius
        return self._finish(color, np.minimum(half - np.abs(y), end - x), joint, WRIST)

    def _jaw(self, kind: str, side: int) -> _Sprite:
        width = {"grasper": 0.8, "scissors": 0.55, "driver": 0.8}[kind] * self.radius
        x, y, joint = self._sprite(0.0, self.reach, 2.0 * self.radius)
        y = y * side
        along = np.clip(x / self.reach, 0, 1)
        curve = 0.35 * self.radius * along**2 if kind == "scissors" else 0 * along
        inner = -0.05 * self.radius + curve
        outer = curve + width * np.sqrt(np.clip(1 - along**3, 0, 1)) * (1 - 0.35 * along)
        color = self._metal(2 * (y - inner) / np.maximum(outer - inner, 0.004) - 1, (0.92, 0.95, 1.0), 0.7)
        if kind != "scissors":
            teeth = np.sin(x * math.tau / (0.16 * self.radius)) > 0
            color[teeth & (y < inner + 0.3 * width)] *= 0.45
        if kind == "grasper":  # the window in a fenestrated grasper's jaw
            window = np.hypot((x - 0.5 * self.reach) / (0.26 * self.reach), (y - 0.5 * width) / (0.2 * width)) < 1
            color[window] *= 0.25
        return self._finish(color, np.minimum(y - inner, outer - y), joint, CLASPER)
