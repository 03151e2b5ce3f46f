"""The still scene of a shot: tissue, organs and vessels, painted once on a canvas larger than the frame."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

from suture.data.synthetic.paint import Floats, Image, Point, blur, centered_grid, draw_line, mix, noise, step
from suture.data.synthetic.scenario import FAT, GAUZE, LIVER, OUTSIDE, THREAD, VESSEL, Shot, SyntheticVideo

MARGIN = 1.4  # size of the canvas in frames, for the camera to move
COVERAGE = {"liver": (0.5, 0.14), "fat": (0.08, 0.5), "wall": (0.0, 0.16), "hilum": (0.3, 0.3)}  # liver, fat
VESSELS = {"liver": 1, "fat": 1, "wall": 2, "hilum": 3}
THREAD_COLOR = (0.30, 0.16, 0.52)


class Canvas:
    """The still scene of a shot, painted layer over layer."""

    color: Floats
    height: Floats
    classes: Image

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings = video.settings
        self.unit = min(settings.width, settings.height)
        self.scale = self.unit * shot.zoom
        self.shape = (round(settings.height * MARGIN), round(settings.width * MARGIN))
        self.hue = np.random.default_rng(video.seed).uniform([0.94, 0.88, 0.86], [1.06, 1.1, 1.12])
        self.rng = np.random.default_rng(shot.seed)
        self.x, self.y = centered_grid(self.shape, self.unit)
        self.classes = np.zeros(self.shape, np.uint8)
        self.wound: Point = self.rng.uniform(-0.12, 0.12, 2)
        if shot.kind == "outside":
            self._paint_drapes()
            return
        self._paint_wall()
        liver, fat = COVERAGE[shot.kind]
        self._paint_fat(fat)
        for _ in range(VESSELS[shot.kind]):
            self._paint_vessel()
        if liver:
            self._paint_liver(liver)
        if shot.suturing:
            self._paint_wound()
        if shot.gauze:
            self._paint_gauze()

    def noise(self, cell: float, octaves: int = 4) -> Floats:
        """Noise with features of `cell` units."""
        return noise(self.rng, self.shape, cell * self.scale, octaves)

    def _lay(self, alpha: Floats, color: Floats, height: Floats, value: int) -> None:
        """Lay a layer on top; its shadow darkens the surroundings a little."""
        mix(self.color, (0, 0, 0), 0.5 * blur(alpha, 0.025 * self.unit))
        mix(self.color, color, alpha)
        self.height += alpha * (height - self.height)
        self.classes[alpha > 0.5] = value

    def _blend(self, low: Sequence[float], high: Sequence[float], weight: Floats) -> Floats:
        """Colour between two, in the patient's hue."""
        a, b = (np.array(c, np.float32) * self.hue.astype(np.float32) for c in (low, high))
        return a + np.clip(weight, 0, 1)[..., None] * (b - a)

    def _paint_drapes(self) -> None:
        """Drapes and a lamp, far out of focus."""
        color = self._blend((0.05, 0.25, 0.28), (0.15, 0.47, 0.52), 0.5 + 0.3 * self.noise(0.25, 2))
        x, y = self.rng.uniform(-0.3, 0.3, 2).tolist()
        mix(color, (0.95, 0.97, 1.0), step(0.3, 0.1, np.hypot(self.x - x, self.y - y)))
        self.color = color
        self.height = np.zeros(self.shape, np.float32)
        self.classes[:] = OUTSIDE

    def _paint_wall(self) -> None:
        """Pink peritoneum with folds and fine vessels."""
        folds, coarse, fine = self.noise(0.35, 2), self.noise(0.45, 3), self.noise(0.03, 3)
        self.color = self._blend((0.72, 0.30, 0.27), (0.92, 0.58, 0.52), 0.5 + 0.28 * coarse + 0.1 * fine)
        drawn: Image = np.zeros(self.shape, np.uint8)
        for _ in range(12):
            self._draw_vessel(drawn, self.rng.uniform(-0.6, 0.6, 2), 0.007)
        mix(self.color, (0.5, 0.06, 0.1), 0.5 * blur(drawn.astype(np.float32) / 255, 0.7))
        self.height = 0.045 * (1 - np.abs(folds)) + 0.010 * coarse + 0.0016 * fine

    def _paint_liver(self, coverage: float) -> None:
        """A dark red-brown lobe with a rounded, smooth rim, coming from above."""
        inside = self._region(coverage, angle=-math.pi / 2 + self.rng.uniform(-0.9, 0.9))
        grain = self.noise(0.018, 2)
        color = self._blend((0.30, 0.07, 0.055), (0.52, 0.17, 0.13), 0.45 + 0.2 * self.noise(0.2) + 0.13 * grain)
        self._lay(self._soft(inside), color, 0.11 * _dome(inside / 0.14) + 0.0008 * grain, LIVER)

    def _paint_fat(self, coverage: float) -> None:
        """Yellow lobules that bulge, with darker grooves between."""
        inside = self._region(coverage, angle=self.rng.uniform(0, math.tau))
        size = 0.055 * self.scale
        seeds = np.full(self.shape, 255, np.uint8)
        points = self.rng.uniform(0, 1, (max(8, int(1.3 * seeds.size / size**2)), 2)) * self.shape
        seeds[points[:, 0].astype(int), points[:, 1].astype(int)] = 0
        distance = blur(cv2.distanceTransform(seeds, cv2.DIST_L2, 5), 0.15 * size)
        bulge = np.clip(1 - (distance / size) ** 2, 0, 1)
        color = self._blend((0.80, 0.42, 0.22), (0.97, 0.80, 0.42), 0.1 + 0.9 * bulge + 0.12 * self.noise(0.2))
        self._lay(self._soft(inside), color, self.height + 0.05 * _dome(inside / 0.12) + 0.022 * bulge, FAT)

    def _paint_vessel(self) -> None:
        """A round vessel: a red artery or a bluish vein."""
        drawn: Image = np.zeros(self.shape, np.uint8)
        start, width = self.rng.uniform(-0.35, 0.35, 2), self.rng.uniform(0.022, 0.042)
        for _ in range(3):
            self._draw_vessel(drawn, start, width)
        depth = cv2.distanceTransform((drawn > 127).astype(np.uint8), cv2.DIST_L2, 3)
        profile = _dome(2 * depth / (width * self.scale))
        artery, vein = ((0.45, 0.05, 0.06), (0.78, 0.16, 0.14)), ((0.28, 0.14, 0.26), (0.50, 0.30, 0.42))
        color = self._blend(*(artery if self.rng.random() < 0.55 else vein), 0.25 + 0.7 * profile)
        # A thin veil of the tissue around stays over the vessel, so that it lies in it rather than on it.
        mix(color, blur(self.color, 0.02 * self.unit), np.full(self.shape, 0.3, np.float32))
        self._lay(blur(drawn.astype(np.float32) / 255, 0.8), color, self.height + 0.45 * width * profile, VESSEL)

    def _paint_wound(self) -> None:
        """A cut in the tissue, half of it closed with stitches."""
        x, y = self.wound.tolist()
        along, across = self.x - x, self.y - y
        bent = across + 0.012 * np.sin(along * 17)
        ends = step(0.32, 0.25, np.abs(along))
        slit, lips = (np.exp(-((bent / width) ** 2)) * ends for width in (0.013, 0.05))
        mix(self.color, (0.42, 0.03, 0.04), np.clip(0.35 * lips + 0.75 * slit, 0, 1))
        self.height += 0.025 * lips - 0.05 * slit
        stitches = np.zeros(self.shape, np.uint8)
        for at in np.linspace(-0.24, -0.02, 5):
            side = np.array([self.rng.uniform(-0.025, 0.025), 0.045])
            middle = self.wound + np.array([at, 0])
            draw_line(stitches, [middle - side, middle + side], self.unit, 0.008 * self.scale)
        thread = np.broadcast_to(np.array(THREAD_COLOR, np.float32), self.color.shape)
        self._lay(blur(stitches.astype(np.float32) / 255, 0.4), thread, self.height + 0.01, THREAD)

    def _paint_gauze(self) -> None:
        """A white woven swab with some blood on it."""
        x, y = self.rng.uniform(-0.3, 0.3, 2).tolist()
        along, across = self.x - x, self.y - y
        folds, stains = self.noise(0.12, 2), self.noise(0.16, 3)
        inside = 0.13 - np.maximum(0.8 * np.abs(along), np.abs(across)) + 0.012 * folds
        weave = np.sin(along * 260) * np.sin(across * 260)
        color = self._blend((0.70, 0.66, 0.62), (0.97, 0.96, 0.94), 0.7 + 0.25 * weave + 0.12 * folds)
        mix(color, (0.62, 0.10, 0.09), 0.8 * step(0.5, 1.4, stains))
        ground = blur(self.height, 0.04 * self.unit)
        self._lay(self._soft(inside), color, ground + 0.015 + 0.010 * folds, GAUZE)

    def _region(self, coverage: float, angle: float) -> Floats:
        """Signed depth in a region that comes from the direction `angle` and covers this share of the canvas."""
        along = self.x * math.cos(angle) + self.y * math.sin(angle)
        across = self.y * math.cos(angle) - self.x * math.sin(angle)
        bulge = along - self.rng.uniform(0.2, 0.7) * across**2 + 0.035 * self.noise(0.35, 3)
        return bulge - np.quantile(bulge[::4, ::4], 1 - coverage).astype(np.float32)

    def _soft(self, inside: Floats) -> Floats:
        return step(-1 / self.unit, 1 / self.unit, inside)

    def _draw_vessel(self, drawn: Image, start: Point, width: float) -> None:
        """Draw a vessel that winds and narrows."""
        angles = self.rng.uniform(0, math.tau) + np.cumsum(self.rng.normal(0, 0.17, 30))
        points = start + 0.03 * np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0)
        for place in range(len(points) - 1):
            draw_line(drawn, points[place : place + 2], self.unit, width * self.scale * (1 - place / len(points)))


def _dome(depth: Floats) -> Floats:
    """Height of a rounded rim: 0 at its edge, 1 from a depth of 1 on."""
    return np.sqrt(1 - (1 - np.clip(depth, 0, 1)) ** 2)
