"""The pixels of generated operations: a planned video in, frames and masks out.

A shot's scene is painted once on a canvas larger than the frame: colour, height and class of tissue, organs and
vessels. Each frame then looks at the canvas through the camera's pose and the tissue's deformation, lights it, and
lays instruments, blood and smoke over it. All motion is a function of time in seconds, so another frame rate gives
other steps per frame of the same operation. Lengths are in units of the frame's shorter side.

>>> videos = plan(SyntheticSettings(cases=2, frames=8, shots=2, width=64, height=48))
>>> rgb, mask = next(render_video(videos[0]))
>>> rgb.shape, mask.shape
((48, 64, 3), (48, 64))
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from suture.data.scenario import (
    CLASPER,
    CLASSES,
    ENTERING,
    FAT,
    GAUZE,
    LIVER,
    NEEDLE,
    OUTSIDE,
    SHAFT,
    THREAD,
    TISSUE,
    VESSEL,
    WRIST,
    EventKind,
    Shot,
    SyntheticSettings,
    SyntheticVideo,
    Tool,
    plan,
)

__all__ = ["CLASSES", "OUTSIDE", "SyntheticSettings", "SyntheticVideo", "plan", "render_video"]

# OpenCV's stubs promise no element type, so these names say it.
Image = NDArray[Any]  # uint8
Floats = NDArray[Any]  # float32
Point = NDArray[Any]  # float64: x and y

GRID = 24  # the deformation is computed at this many places in each direction and interpolated
EXPOSURE = 0.03  # seconds that the shutter is open
MARGIN = 1.4  # the canvas is this much larger than the frame, for the camera to move
COVERAGE = {"liver": (0.5, 0.14), "fat": (0.08, 0.5), "wall": (0.0, 0.16), "hilum": (0.3, 0.3)}  # liver, fat
RAMP: dict[EventKind, float] = {"smoke": 2.5, "light": 0.5, "defocus": 0.6, "sweep": 0.7}  # seconds to full strength
# How wet each class shines: liver and vessels are smooth and wet, gauze is dull.
GLOSS = np.zeros(256, np.float32)
GLOSS[[TISSUE, LIVER, FAT, VESSEL, THREAD]] = 0.85, 1.0, 0.6, 1.0, 0.3


def render_video(video: SyntheticVideo, frames: Collection[int] | None = None) -> Iterator[tuple[Image, Image]]:
    """Yield every frame, or only `frames` in their order, as RGB with its mask.

    The mask holds class values, and 255 outside the view and out of the body.
    """
    finish = _Finish(video)
    for shot in video.shots:
        wanted = [f for f in range(shot.first, shot.last + 1) if frames is None or f in frames]
        if wanted:
            stage = _OutOfBody(video, shot) if shot.kind == "outside" else _Scene(video, shot)
            for frame in wanted:
                yield finish(*stage.frame(frame), frame)


def _noise(rng: np.random.Generator, shape: tuple[int, int], cell: float, octaves: int = 4) -> Floats:
    """Smooth noise with features of `cell` pixels and finer ones; mean 0, standard deviation 1."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.5)
        grid = rng.standard_normal((math.ceil(height / size) + 3, math.ceil(width / size) + 3)).astype(np.float32)
        scaled = cv2.resize(grid, None, fx=size, fy=size, interpolation=cv2.INTER_CUBIC)
        offset = int(size)
        total += scaled[offset : offset + height, offset : offset + width] / 2**octave
    return (total - total.mean()) / (total.std() + 1e-6)


def _step(low: float, high: float, x: Floats) -> Floats:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def _ease(x: float) -> float:
    x = min(max(x, 0.0), 1.0)
    return x * x * (3 - 2 * x)


def _blur(image: Floats, sigma: float) -> Floats:
    return cv2.GaussianBlur(image, (0, 0), max(sigma, 0.3), borderType=cv2.BORDER_REFLECT_101)


def _smear(image: Floats, vector: Point) -> Floats:
    """Motion blur along a vector of pixels."""
    reach = math.ceil(np.abs(vector).max() / 2)
    if reach < 1:
        return image
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1), np.uint8)
    ends = np.round((reach + np.array([-vector, vector]) / 2) * 16).astype(int)
    cv2.line(kernel, ends[0].tolist(), ends[1].tolist(), 255, 1, cv2.LINE_AA, shift=4)
    return cv2.filter2D(image, -1, kernel.astype(np.float32) / kernel.sum())


class _Canvas:
    """The still scene of a shot, painted layer over layer."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings, look = video.settings, video.look
        rng = np.random.default_rng(shot.seed)
        self.unit = min(settings.width, settings.height)
        self.zoom = look.zoom / shot.distance
        self.shape = (round(settings.height * MARGIN), round(settings.width * MARGIN))
        self.rng, self.hue = rng, np.array(look.hue, np.float32)
        height, width = self.shape
        ys, xs = np.mgrid[:height, :width].astype(np.float32)
        self.x, self.y = (xs - width / 2) / self.unit, (ys - height / 2) / self.unit
        self.classes = np.zeros(self.shape, np.uint8)
        self._paint_wall()
        liver, fat = COVERAGE[shot.kind]
        self._paint_fat(fat * rng.uniform(0.8, 1.2))
        for _ in range({"hilum": 3, "wall": 2}.get(shot.kind, 1)):
            self._paint_vessel()
        if liver:
            self._paint_liver(liver * rng.uniform(0.85, 1.15))
        self.wound: Point = rng.uniform(-0.12, 0.12, 2)
        if shot.suturing:
            self._paint_wound()
        if shot.gauze:
            self._paint_gauze()

    def noise(self, cell: float, octaves: int = 4) -> Floats:
        return _noise(self.rng, self.shape, cell * self.unit * self.zoom, octaves)

    def _lay(self, alpha: Floats, color: Floats, height: Floats, value: int, shade: float = 0.6) -> None:
        """Lay a layer over what is there; it darkens its surroundings a little, as a thing that lies on others does."""
        shadow = _blur(alpha, 0.025 * self.unit) * shade
        self.color *= (1 - shadow)[..., None]
        self.color += alpha[..., None] * (color - self.color)
        self.height += alpha * (height - self.height)
        self.classes[alpha > 0.5] = value

    def _mix(self, low: Sequence[float], high: Sequence[float], weight: Floats) -> Floats:
        a, b = (np.array(c, np.float32) * self.hue for c in (low, high))
        return a + np.clip(weight, 0, 1)[..., None] * (b - a)

    def _paint_wall(self) -> None:
        """Pink peritoneum with folds and a net of fine vessels."""
        folds = 1 - 0.8 * np.sqrt(self.noise(0.35, 2) ** 2 + 0.04)
        coarse, fine = self.noise(0.45, 3), self.noise(0.03, 3)
        self.color = self._mix((0.72, 0.30, 0.27), (0.92, 0.58, 0.52), 0.5 + 0.28 * coarse + 0.1 * fine)
        capillaries = np.zeros(self.shape, np.uint8)
        for _ in range(7):
            self._grow(capillaries, self._anywhere(0.6), self.rng.uniform(0, math.tau), 0.010, 0.9)
        net = _blur(capillaries.astype(np.float32) / 255, 0.7)
        self.color += (net * 0.55)[..., None] * (self._mix((0.5, 0.06, 0.1), (0.5, 0.06, 0.1), net) - self.color)
        self.height = 0.045 * folds + 0.010 * coarse + 0.0016 * fine + 0.004 * self.noise(0.1, 2)

    def _paint_liver(self, coverage: float) -> None:
        """A dark red-brown lobe with a rounded, smooth rim, coming from above."""
        inside = self._region(coverage, angle=-math.pi / 2 + self.rng.uniform(-0.9, 0.9), rough=0.035)
        rim = np.clip(inside / (0.14 * self.zoom), 0, 1)
        dome = 0.11 * np.sqrt(1 - (1 - rim) ** 2)
        mottle, grain = self.noise(0.2), self.noise(0.018, 2)
        color = self._mix((0.30, 0.07, 0.055), (0.52, 0.17, 0.13), 0.45 + 0.2 * mottle + 0.13 * grain)
        height = 0.06 + dome + 0.006 * self.noise(0.22, 2) + 0.0008 * grain
        self._lay(self._soft(inside), color, height, LIVER, 0.75)

    def _paint_fat(self, coverage: float) -> None:
        """Yellow fat in lobules, from below."""
        inside = self._region(coverage, angle=math.pi / 2 + self.rng.uniform(-1.1, 1.1), rough=0.09)
        seeds = np.full(self.shape, 255, np.uint8)
        size = 0.055 * self.unit * self.zoom
        points = self.rng.uniform(0, 1, (max(8, int(1.3 * seeds.size / size**2)), 2)) * self.shape
        seeds[points[:, 0].astype(int), points[:, 1].astype(int)] = 0
        bend = 0.006 * self.unit
        distance = cv2.distanceTransform(seeds, cv2.DIST_L2, 5)
        ys, xs = np.mgrid[: self.shape[0], : self.shape[1]].astype(np.float32)
        distance = cv2.remap(
            distance, xs + bend * self.noise(0.05, 2), ys + bend * self.noise(0.05, 2), cv2.INTER_LINEAR
        )
        bulge = np.clip(1 - (distance / size) ** 2, 0, 1)
        color = self._mix((0.80, 0.42, 0.22), (0.97, 0.80, 0.42), 0.1 + 0.9 * bulge + 0.12 * self.noise(0.2))
        rim = np.clip(inside / 0.12, 0, 1)
        height = self.height + 0.05 * np.sqrt(1 - (1 - rim) ** 2) + 0.022 * bulge + 0.001 * self.noise(0.02, 2)
        self._lay(self._soft(inside), color, height, FAT)

    def _paint_vessel(self) -> None:
        """A round vessel that branches: a red artery or a bluish vein."""
        drawn = np.zeros(self.shape, np.uint8)
        start, angle = self._anywhere(0.35), self.rng.uniform(0, math.tau)
        width = self.rng.uniform(0.022, 0.042)
        self._grow(drawn, start, angle, width, 0.9)
        self._grow(drawn, start, angle + math.pi, width, 0.9)
        depth = cv2.distanceTransform((drawn > 127).astype(np.uint8), cv2.DIST_L2, 3)
        radius = 0.5 * width * self.unit * self.zoom
        profile = np.sqrt(np.clip(1 - (1 - np.clip(depth / radius, 0, 1)) ** 2, 0, 1))
        dark, bright = ((0.45, 0.05, 0.06), (0.78, 0.16, 0.14))
        if self.rng.random() < 0.45:
            dark, bright = ((0.28, 0.14, 0.26), (0.50, 0.30, 0.42))
        color = self._mix(dark, bright, 0.25 + 0.7 * profile + 0.1 * self.noise(0.05))
        height = self.height + 0.45 * width * profile
        # A thin veil of the tissue around stays over the vessel, so that it lies in it rather than on it.
        color += 0.3 * (_blur(self.color, 0.02 * self.unit) - color)
        self._lay(_blur(drawn.astype(np.float32) / 255, 0.8), color, height, VESSEL, 0.3)

    def _paint_wound(self) -> None:
        """A cut in the tissue, half of it closed with stitches."""
        angle = self.rng.uniform(-0.5, 0.5)
        along, across = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        u = (self.x - self.wound[0]) * along[0] + (self.y - self.wound[1]) * along[1]
        v = (self.x - self.wound[0]) * across[0] + (self.y - self.wound[1]) * across[1]
        bent = v + 0.012 * np.sin(u * 17)
        slit = np.exp(-((bent / 0.013) ** 2)) * (1 - _step(0.25, 0.3, np.abs(u)))
        lips = np.exp(-((bent / 0.05) ** 2)) * (1 - _step(0.25, 0.32, np.abs(u)))
        red = np.array([0.42, 0.03, 0.04], np.float32)
        self.color += np.clip(0.35 * lips + 0.75 * slit, 0, 1)[..., None] * (red - self.color)
        self.height += 0.025 * lips - 0.05 * slit
        stitches = np.zeros(self.shape, np.uint8)
        for at in np.linspace(-0.24, -0.02, 5):
            lean = self.rng.uniform(-0.025, 0.025)
            ends = [self.wound + along * (at + s * lean) + across * s * 0.045 for s in (-1, 1)]
            self._line(stitches, ends, 0.008)
        thread = _blur(stitches.astype(np.float32) / 255, 0.4)
        violet = np.broadcast_to(np.array(THREAD_COLOR, np.float32), self.color.shape)
        self._lay(thread, violet, self.height + 0.01, THREAD, 0.4)

    def _paint_gauze(self) -> None:
        """A white woven swab with some blood on it."""
        center, angle = self._anywhere(0.3), self.rng.uniform(0, 3.1)
        u = (self.x - center[0]) * math.cos(angle) + (self.y - center[1]) * math.sin(angle)
        v = (self.y - center[1]) * math.cos(angle) - (self.x - center[0]) * math.sin(angle)
        wave = 0.018 * self.noise(0.15, 2)
        inside = 0.13 * self.zoom - np.maximum(np.abs(u) * 0.8, np.abs(v)) + wave
        weave = np.sin(u * 260 / self.zoom) * np.sin(v * 260 / self.zoom)
        folds = self.noise(0.12, 2)
        color = self._mix((0.70, 0.66, 0.62), (0.97, 0.96, 0.94), 0.7 + 0.25 * weave + 0.12 * folds)
        stain = _step(0.5, 1.4, self.noise(0.16, 3)) * 0.8
        color += stain[..., None] * (np.array([0.62, 0.10, 0.09], np.float32) - color)
        ground = _blur(self.height, 0.04 * self.unit)
        self._lay(self._soft(inside), color, ground + 0.015 + 0.010 * folds + 0.001 * weave, GAUZE, 0.45)

    def _anywhere(self, reach: float) -> Point:
        return self.rng.uniform(-reach, reach, 2)

    def _region(self, coverage: float, angle: float, rough: float) -> Floats:
        """Signed depth inside a region that comes from the direction `angle` and fills this share of the canvas."""
        along = self.x * math.cos(angle) + self.y * math.sin(angle)
        across = -self.x * math.sin(angle) + self.y * math.cos(angle) - self.rng.uniform(-0.25, 0.25)
        bulge = along - self.rng.uniform(0.2, 0.7) * across**2 + rough * self.noise(0.35, 3)
        return bulge - np.quantile(bulge[::4, ::4], 1 - coverage).astype(np.float32)

    def _soft(self, inside: Floats) -> Floats:
        pixel = 1.0 / self.unit
        return _step(-pixel, pixel, inside)

    def _line(self, drawn: Image, points: Sequence[Point], width: float) -> None:
        center = np.array([self.shape[1], self.shape[0]]) / 2
        line = np.round((np.array(points) * self.unit + center) * 16).astype(np.int32)
        thickness = max(1, round(width * self.unit * self.zoom))
        cv2.polylines(drawn, [line], False, 255, thickness, cv2.LINE_AA, shift=4)

    def _grow(self, drawn: Image, start: Point, angle: float, width: float, length: float) -> None:
        """Draw a vessel that winds, narrows and branches."""
        step, at, points = 0.03, start, [start]
        while length > 0 and width * self.unit > 0.6:
            angle += self.rng.normal(0, 0.17)
            at = at + step * np.array([math.cos(angle), math.sin(angle)])
            points.append(at)
            length -= step
            if self.rng.random() < 0.07 and len(points) > 3:
                fork = self.rng.choice([-1, 1]) * self.rng.uniform(0.5, 0.9)
                self._grow(drawn, at, angle + fork, width * 0.6, length * 0.6)
                width *= 0.9
            self._line(drawn, points[-2:], width * min(1.0, 0.3 + length / 0.2))


THREAD_COLOR = (0.30, 0.16, 0.52)


class _Part(NamedTuple):
    """A rigid part of an instrument: colour times opacity, opacity, and where its joint lies in the picture."""

    rgba: Image
    joint: tuple[float, float]
    value: int


class _Instrument:
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
        """Where the wrist's joint with the shaft is in the frame, and the direction from the trocar to it."""
        wander = [
            0.065 * math.sin(math.tau * self.rates[i] * time + self.phases[i])
            + 0.035 * math.sin(math.tau * self.rates[i + 2] * 2.2 * time + self.phases[i + 2])
            for i in range(2)
        ]
        there = self.work + wander
        inside = _ease((time - self.tool.enter) / ENTERING) * (1 - _ease((time - self.tool.leave) / ENTERING))
        inwards = (there - self.pivot) / np.linalg.norm(there - self.pivot)
        return there - inwards * 1.1 * (1 - inside), inwards

    def pose(self, time: float) -> tuple[Point, float, float, float]:
        """The wrist's joint, the angles of shaft and wrist, and how far the jaws are open."""
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
        smeared = _smear(layer[part], velocity)
        picture[part] *= 1 - smeared[..., 3:]
        picture[part] += smeared[..., :3] * np.minimum(light[part], 1.15)[..., None]

    def _place(self, layer: Floats, classes: Image, part: _Part, at: Point, angle: float) -> None:
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
        """Coordinates (x along, y across, in units of the frame) of a picture, and where its origin lies."""
        xs = np.arange(math.floor(left * self.unit), math.ceil(right * self.unit) + 1, dtype=np.float32)
        ys = np.arange(math.floor(-half * self.unit), math.ceil(half * self.unit) + 1, dtype=np.float32)
        x, y = np.meshgrid(xs / self.unit, ys / self.unit)
        return x, y, (-float(xs[0]), -float(ys[0]))

    def _finish(self, color: Floats, inside: Floats, joint: tuple[float, float], value: int) -> _Part:
        alpha = np.clip(0.5 + inside * self.unit, 0, 1)[..., None]
        rgba = np.concatenate([np.clip(color, 0, 1) * alpha, alpha], axis=2)
        return _Part((rgba * 255 + 0.5).astype(np.uint8), joint, value)

    def _metal(self, across: Floats, tint: Sequence[float], base: float = 0.6) -> Floats:
        """A brushed metal cylinder lit from the camera; `across` is -1 to 1 from edge to edge."""
        round_ = np.sqrt(np.clip(1 - across**2, 0.02, 1))
        gleam = np.exp(-(((across + 0.3) / 0.16) ** 2)) * 0.55 + np.exp(-(((across - 0.55) / 0.12) ** 2)) * 0.2
        shade = base * (0.25 + 0.75 * round_) + gleam * (0.35 + 0.65 * base)
        return shade[..., None] * np.array(tint, np.float32)

    def _shaft(self, base: float) -> _Part:
        x, y, joint = self._sprite(-2.2, 0.0, 2.2 * self.radius)
        half = self.radius * (1 - 0.35 * x)  # nearer to the camera, so wider, towards the trocar
        color = self._metal(y / half, (0.95, 0.98, 1.0), base)
        collar = x > -0.7 * self.radius
        color[collar] = self._metal(y / half, (0.95, 0.96, 1.0), 0.55)[collar]
        color[np.abs(x + 0.72 * self.radius) < 0.008] *= 0.3
        return self._finish(color, np.minimum(half - np.abs(y), -x), joint, SHAFT)

    def _wrist(self) -> _Part:
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

    def _jaw(self, kind: str, side: int) -> _Part:
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


class _Scene:
    """A shot inside the body: the canvas seen through a moving camera, with all that goes on over it."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings, look = video.settings, video.look
        self.video, self.shot = video, shot
        self.events = [event for event in video.events if shot.first <= event.first <= shot.last]
        self.width, self.height = settings.width, settings.height
        self.unit = min(self.width, self.height)
        rng = np.random.default_rng([*shot.seed, 1])
        canvas = _Canvas(video, shot)
        self.color, self.relief, self.classes = canvas.color, canvas.height, canvas.classes
        self.wound = canvas.wound
        ys, xs = np.mgrid[: self.height, : self.width].astype(np.float32)
        self.x, self.y = (xs - self.width / 2) / self.unit, (ys - self.height / 2) / self.unit
        # Organs slide with the breath more than the wall does.
        organs = _blur(np.isin(canvas.classes, (LIVER, FAT)).astype(np.float32), 0.06 * self.unit)
        seen = cv2.getRectSubPix(
            organs, (self.width, self.height), ((organs.shape[1] - 1) / 2, (organs.shape[0] - 1) / 2)
        )
        self.mobility = cv2.resize(seen, (GRID, GRID), interpolation=cv2.INTER_AREA)
        self.breath_way = rng.uniform(-1, 1, 2) * (0.5, 1.0)
        self.heart: Point = rng.uniform(-0.3, 0.3, 2)
        self.drift = rng.uniform(0.02, 0.07, 3), rng.uniform(0, math.tau, 3)
        self.sweep_way = rng.choice([-1, 1], 2) * rng.uniform(0.05, 0.12, 2)
        self.instruments = [_Instrument(tool, video) for tool in shot.tools]
        offset = np.array(look.light) + rng.uniform(-0.1, 0.1, 2)
        dx, dy = self.x - float(offset[0]), self.y - float(offset[1])
        self.slope_x, self.slope_y = -dx * 0.9, -dy * 0.9  # towards the light, per pixel
        self.length = np.sqrt(1 + self.slope_x**2 + self.slope_y**2)
        gain = look.exposure / shot.distance  # the light is at the camera, so what is near is bright
        self.falloff = gain * 1.2 / (1 + look.falloff * 2.2 * (dx * dx + dy * dy))
        margin = (self.height * 2, self.width * 2)
        self.smoke = _step(-0.9, 1.6, _noise(rng, margin, 0.5 * self.unit)) if self._has("smoke") else None
        source = rng.uniform(-0.25, 0.25, 2).tolist()
        self.pool = np.hypot(canvas.x - source[0], (canvas.y - source[1]) * 1.3) + 0.035 * canvas.noise(0.2)
        self.light = float(rng.choice([0.7, 0.78, 1.22]))

    def frame(self, frame: int) -> tuple[Floats, Image]:
        """The lit picture (0 to 1) and the classes at a frame."""
        now = self.video.seconds(frame)
        time = self.shot.start + now - self.video.seconds(self.shot.first)
        sweep = self._strength("sweep", now)
        map_x, map_y = self._look_at(time, sweep)
        color = cv2.remap(self.color, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
        height = cv2.remap(self.relief, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
        classes = cv2.remap(self.classes, map_x, map_y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT_101)
        gloss = GLOSS[classes]
        if self._has("blood"):
            color, height, gloss = self._bleed(color, height, gloss, map_x, map_y, now)
        self._cast_shadows(color, time)
        picture = self._lit(color, height, gloss)
        for instrument in self.instruments:
            if instrument.tool.kind == "driver":
                self._lay_suture(picture, classes, instrument, time)
            instrument.draw(picture, classes, self.falloff, time)
        if self.smoke is not None:
            self._lay_smoke(picture, now)
        picture *= 1 + (self.light - 1) * self._strength("light", now)
        blur = self._strength("defocus", now)
        if blur > 0.05:
            picture = _blur(picture, 0.014 * self.unit * blur)
        if sweep:
            speed = (self._strength("sweep", now) - self._strength("sweep", now - EXPOSURE)) * self.sweep_way
            picture = _smear(picture, speed * self.unit)
        return picture, classes

    def _has(self, kind: EventKind) -> bool:
        return any(event.kind == kind for event in self.events)

    def _strength(self, kind: EventKind, now: float) -> float:
        """How strong an event of this shot is now: 0 to 1; it rises and falls, and a short one stays weak."""
        strength = 0.0
        for event in self.events:
            if event.kind == kind:
                half_step = 0.5 / self.video.settings.fps
                start, end = self.video.seconds(event.first) - half_step, self.video.seconds(event.last) + half_step
                ramp = min(RAMP[kind], 0.45 * (end - start))
                peak = min(1.0, (end - start) / (2 * RAMP[kind]))
                strength = max(strength, peak * _ease((now - start) / ramp) * _ease((end - now) / ramp))
        return strength

    def _deform(self, x: Floats, y: Floats, time: float, mobility: Floats) -> tuple[Floats, Floats]:
        """How far the tissue at these places is moved by breath, heart, bowel and instruments."""
        look = self.video.look
        breath = math.sin(math.tau * time / look.breath) + 0.3 * math.sin(2 * math.tau * time / look.breath + 1)
        beat = math.exp(-((((time / look.pulse) % 1) - 0.3) ** 2) / 0.02)
        from_x, from_y = x - self.heart[0], y - self.heart[1]
        pulse = 0.09 * beat * np.exp(-(from_x**2 + from_y**2) / 0.05)
        slide = 0.018 * breath * (0.35 + mobility)
        moved_x = slide * self.breath_way[0] + pulse * from_x + 0.006 * np.sin(9 * y + 0.9 * time)
        moved_y = slide * self.breath_way[1] + pulse * from_y + 0.006 * np.sin(8 * x - 0.7 * time)
        for instrument in self.instruments:  # an instrument draws the tissue under its jaws together
            tip = instrument.jaws(time)
            near_x, near_y = x - tip[0], y - tip[1]
            pinch = 0.45 * np.exp(-(near_x**2 + near_y**2) / 0.007)
            moved_x, moved_y = moved_x + pinch * near_x, moved_y + pinch * near_y
        return moved_x, moved_y

    def _camera(self, time: float, sweep: float) -> tuple[float, float, float, float]:
        """The camera's pose: shift x, y, angle, scale; held by hand, so it drifts."""
        rates, phases = self.drift
        sway = [math.sin(math.tau * rates[i] * time + phases[i]) for i in range(3)]
        shift_x, shift_y = (0.04 * np.array(sway[:2]) + self.sweep_way * sweep).tolist()
        return shift_x, shift_y, 0.06 * sway[2], 1 + 0.04 * sway[0] * sway[2]

    def _look_at(self, time: float, sweep: float) -> tuple[Floats, Floats]:
        """For every pixel of the frame the place on the canvas."""
        shift_x, shift_y, angle, scale = self._camera(time, sweep)
        ys, xs = np.mgrid[:GRID, :GRID].astype(np.float32)
        moved = self._deform(
            ((xs + 0.5) / GRID - 0.5) * self.width / self.unit,
            ((ys + 0.5) / GRID - 0.5) * self.height / self.unit,
            time,
            self.mobility,
        )
        grid = cv2.resize(np.dstack(moved).astype(np.float32), (self.width, self.height), interpolation=cv2.INTER_CUBIC)
        cos, sin = math.cos(angle) * scale * self.unit, math.sin(angle) * scale * self.unit
        rows, columns = self.classes.shape
        x, y = self.x + grid[..., 0], self.y + grid[..., 1]
        return (
            cos * x - sin * y + (shift_x * self.unit + columns / 2),
            sin * x + cos * y + (shift_y * self.unit + rows / 2),
        )

    def _bleed(
        self, color: Floats, height: Floats, gloss: Floats, map_x: Floats, map_y: Floats, now: float
    ) -> tuple[Floats, Floats, Floats]:
        """Blood spreads from its source, dark, flat and wet; the mask keeps what lies under it."""
        start = min(self.video.seconds(event.first) for event in self.events if event.kind == "blood")
        reach = 0.36 * (1 - math.exp(-max(now - start, 0) / 3.5))
        if reach <= 0:
            return color, height, gloss
        pool = cv2.remap(self.pool, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
        alpha = (1 - _step(reach - 0.025, reach, pool)) * 0.93
        red = np.array([0.40, 0.015, 0.02], np.float32)
        color += alpha[..., None] * (red - color)
        return color, height + 0.8 * alpha * (_blur(height, 0.02 * self.unit) - height), gloss + 0.3 * alpha

    def _lit(self, color: Floats, height: Floats, gloss: Floats) -> Floats:
        """Light from beside the camera: shading by the surface's slope, and wet highlights where it mirrors."""
        gx = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3, scale=self.unit / 8)
        gy = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3, scale=self.unit / 8)
        facing = (1 - gx * self.slope_x - gy * self.slope_y) / (np.sqrt(1 + gx * gx + gy * gy) * self.length)
        off_x, off_y = gx + 0.5 * self.slope_x + 0.25, gy + 0.5 * self.slope_y + 0.3
        off = off_x * off_x + off_y * off_y
        shine = gloss * (0.9 * np.exp(off * -40) + 0.12 * np.exp(off * -5))
        light = (0.22 + 0.85 * np.maximum(facing, 0)) * self.falloff
        return color * light[..., None] + (shine * np.sqrt(self.falloff))[..., None]

    def _cast_shadows(self, color: Floats, time: float) -> None:
        """Soft shadows of the instruments on the tissue, drawn small and enlarged."""
        small = np.zeros((max(self.height // 4, 8), max(self.width // 4, 8)), np.uint8)
        scale = np.array([small.shape[1] / self.width, small.shape[0] / self.height]) * self.unit
        center = np.array([small.shape[1], small.shape[0]]) / 2
        for instrument in self.instruments:
            tip, shaft, _, _ = instrument.pose(time)
            back = tip - 2 * np.array([math.cos(shaft), math.sin(shaft)])
            points = np.array([back, tip, instrument.jaws(time)]) + np.array([0.02, 0.05])
            line = np.round((points * scale + center) * 16).astype(np.int32)
            cv2.polylines(
                small, [line], False, 255, max(1, round(1.7 * instrument.radius * scale[0])), cv2.LINE_AA, shift=4
            )
        if small.any():
            soft = cv2.GaussianBlur(small.astype(np.float32) / 255, (0, 0), 0.02 * self.unit / 4 + 0.5)
            color *= 1 - 0.55 * cv2.resize(soft, (self.width, self.height))[..., None]

    def _lay_suture(self, picture: Floats, classes: Image, tool: _Instrument, time: float) -> None:
        """The curved needle in the driver's jaws and the thread from its end to the last stitch."""
        _, _, wrist, _ = tool.pose(time)
        tip = tool.jaws(time)
        radius = 0.075
        turn = wrist + 0.4 * math.sin(0.9 * time + tool.phases[0])
        center = tip + radius * np.array([math.cos(turn), math.sin(turn)])
        arc = turn + math.pi + np.linspace(-2.1, 0.7, 24)
        needle = center + radius * np.stack([np.cos(arc), np.sin(arc)], axis=1)
        end, stitch = needle[0], self.wound
        sag = np.array([0.06 * math.sin(0.7 * time), 0.22 + 0.05 * math.sin(1.1 * time + 1)])
        s = np.linspace(0, 1, 32)[:, None]
        curl = 0.02 * np.sin(9 * s + time) * np.sin(math.pi * s)
        thread = (
            (1 - s) ** 3 * end
            + 3 * s * (1 - s) ** 2 * (end + sag)
            + 3 * s * s * (1 - s) * (stitch + sag)
            + s**3 * stitch
        )
        self._lay_line(picture, classes, thread + curl, 0.008, THREAD_COLOR, THREAD)
        self._lay_line(picture, classes, needle, 0.012, (0.82, 0.84, 0.88), NEEDLE)

    def _lay_line(
        self, picture: Floats, classes: Image, points: Point, width: float, color: Sequence[float], value: int
    ) -> None:
        drawn = np.zeros((self.height, self.width), np.uint8)
        line = np.round((points * self.unit + np.array([self.width, self.height]) / 2) * 16).astype(np.int32)
        cv2.polylines(drawn, [line], False, 255, max(1, round(width * self.unit)), cv2.LINE_AA, shift=4)
        x, y, w, h = cv2.boundingRect(drawn)
        if w == 0:
            return
        part = np.s_[y : y + h, x : x + w]
        alpha = drawn[part].astype(np.float32)[..., None] / 255
        lit = np.array(color, np.float32) * np.minimum(self.falloff[part], 1.1)[..., None]
        picture[part] += alpha * (lit - picture[part])
        classes[part][drawn[part] > 110] = value

    def _lay_smoke(self, picture: Floats, now: float) -> None:
        strength = self._strength("smoke", now)
        if strength <= 0 or self.smoke is None:
            return
        # The texture moves to and fro over its margin, so that it never runs out.
        at_x = (0.5 + 0.5 * math.sin(0.21 * now)) * self.width
        at_y = (0.5 + 0.5 * math.sin(0.17 * now + 1)) * self.height
        matrix = np.array([[1, 0, -at_x], [0, 1, -at_y]])
        haze = cv2.warpAffine(self.smoke, matrix, (self.width, self.height), borderMode=cv2.BORDER_REFLECT_101)
        alpha = (0.62 * strength * haze)[..., None]
        picture += alpha * (np.array([0.70, 0.70, 0.72], np.float32) * self.falloff[..., None] - picture)


class _OutOfBody:
    """The scope outside the patient: drapes, a lamp and gloves, far out of focus."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings = video.settings
        rng = np.random.default_rng(shot.seed)
        self.video, self.unit = video, min(settings.width, settings.height)
        shape = (round(settings.height * MARGIN), round(settings.width * MARGIN))
        cloth = _noise(rng, shape, 0.25 * self.unit, 2)[..., None]
        picture = np.array([0.10, 0.36, 0.40], np.float32) * (1 + 0.3 * cloth)
        for color, size in (((0.95, 0.97, 1.0), 0.16), ((0.85, 0.80, 0.70), 0.22), ((0.62, 0.64, 0.70), 0.12)):
            x, y = (rng.uniform(0.2, 0.8, 2) * shape[::-1]).astype(int)
            axes = (rng.uniform(0.7, 1.6, 2) * size * self.unit).astype(int)
            cv2.ellipse(picture, (int(x), int(y)), axes.tolist(), rng.uniform(0, 180), 0, 360, color, -1)
        self.picture = _blur(picture, 0.035 * self.unit)
        self.mask = np.full((settings.height, settings.width), OUTSIDE, np.uint8)

    def frame(self, frame: int) -> tuple[Floats, Image]:
        time = self.video.seconds(frame)
        height, width = self.mask.shape
        room_x, room_y = self.picture.shape[1] - width, self.picture.shape[0] - height
        x, y = room_x * (0.5 + 0.5 * math.sin(0.8 * time)), room_y * (0.5 + 0.5 * math.sin(0.6 * time))
        moved = cv2.warpAffine(self.picture, np.array([[1, 0, -x], [0, 1, -y]]), (width, height))
        return moved, self.mask.copy()


class _Finish:
    """The camera and the recorder: sensor noise, the round view, the overlay bar."""

    def __init__(self, video: SyntheticVideo):
        settings = video.settings
        self.video = video
        self.shape = (settings.height, settings.width)
        rng = np.random.default_rng([*video.shots[0].seed, 2])
        margin = (settings.height + 64, settings.width + 64, 3)
        grain = rng.standard_normal(margin, np.float32)
        self.grain = (0.6 * grain + 0.4 * grain[..., 1:2]) * video.look.noise
        self.open: Floats | None = None
        self.outside: NDArray[np.bool_] | None = None
        if video.view is not None:
            self.open, self.outside = self._opening(video)
        self.bar = self._menu(video.bar) if video.bar else None

    def __call__(self, picture: Floats, classes: Image, frame: int) -> tuple[Image, Image]:
        height, width = self.shape
        x, y = np.random.default_rng([frame, len(self.video.numbers)]).integers(0, 65, 2)
        if self.open is not None and self.outside is not None:
            picture = picture * self.open[..., None] + 0.012
            classes[self.outside] = OUTSIDE
        over = np.maximum(picture - 0.75, 0)  # cameras roll bright values off softly
        picture = np.minimum(picture, 0.75) + over / (1 + 4 * over) + self.grain[y : y + height, x : x + width]
        rgb = cv2.convertScaleAbs(np.maximum(picture, 0), alpha=255)
        if self.bar is not None:
            rgb[: self.bar.shape[0]] = self.bar
        return rgb, classes

    def _opening(self, video: SyntheticVideo) -> tuple[Floats, NDArray[np.bool_]]:
        assert video.view is not None
        x, y, w, h = video.view.rect
        inside = np.zeros(self.shape, bool)
        inside[y : y + h, x : x + w] = True
        soft = np.ones(self.shape, np.float32)
        if video.view.circle is not None:
            cx, cy, radius = video.view.circle
            ys, xs = np.ogrid[: self.shape[0], : self.shape[1]]
            distance = np.hypot(xs - cx, ys - cy).astype(np.float32)
            inside &= distance <= radius
            soft = np.clip(radius + 0.5 - distance, 0, 1)
        return soft, ~inside

    def _menu(self, bar: tuple[int, int, int, int]) -> Image:
        """The recorder's status line: dark, with text and a recording light."""
        _, _, width, height = bar
        drawn = np.full((height, width, 3), (26, 30, 38), np.uint8)
        drawn[-1] = (70, 80, 95)
        text, font = "REC 00:12:47  ZOOM 1.2x  LIGHT 80%", cv2.FONT_HERSHEY_SIMPLEX
        (length, _), _ = cv2.getTextSize(text, font, 1.0, 1)
        scale = min(height / 45, (width - 1.2 * height) / length)
        cv2.circle(drawn, (height // 2, height // 2), max(1, height // 5), (220, 40, 40), -1, cv2.LINE_AA)
        cv2.putText(drawn, text, (height, round(0.68 * height)), font, scale, (205, 212, 222), 1, cv2.LINE_AA)
        return drawn
