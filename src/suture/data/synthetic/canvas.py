"""The still scene of a shot: tissue, organs and vessels, painted once on a canvas larger than the frame."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

from suture.data.synthetic.paint import Floats, Image, Point, blur, centered_grid, draw_line, noise, step
from suture.data.synthetic.scenario import FAT, GAUZE, LIVER, THREAD, VESSEL, Shot, SyntheticVideo

MARGIN = 1.4  # size of the canvas in frames, for the camera to move
COVERAGE = {"liver": (0.5, 0.14), "fat": (0.08, 0.5), "wall": (0.0, 0.16), "hilum": (0.3, 0.3)}  # liver, fat
THREAD_COLOR = (0.30, 0.16, 0.52)


class Canvas:
    """The still scene of a shot, painted layer over layer."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings, look = video.settings, video.look
        rng = np.random.default_rng(shot.seed)
        self.unit = min(settings.width, settings.height)
        self.zoom = look.zoom / shot.distance
        self.shape = (round(settings.height * MARGIN), round(settings.width * MARGIN))
        self.rng, self.hue = rng, np.array(look.hue, np.float32)
        self.x, self.y = centered_grid(self.shape, self.unit)
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
        return noise(self.rng, self.shape, cell * self.unit * self.zoom, octaves)

    def _lay(self, alpha: Floats, color: Floats, height: Floats, value: int, shade: float = 0.6) -> None:
        """Lay a layer on top; its shadow darkens the surroundings a little."""
        shadow = blur(alpha, 0.025 * self.unit) * shade
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
        net = blur(capillaries.astype(np.float32) / 255, 0.7)
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
        at_x, at_y = xs + bend * self.noise(0.05, 2), ys + bend * self.noise(0.05, 2)
        distance = cv2.remap(distance, at_x, at_y, cv2.INTER_LINEAR)
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
        color += 0.3 * (blur(self.color, 0.02 * self.unit) - color)
        self._lay(blur(drawn.astype(np.float32) / 255, 0.8), color, height, VESSEL, 0.3)

    def _paint_wound(self) -> None:
        """A cut in the tissue, half of it closed with stitches."""
        angle = self.rng.uniform(-0.5, 0.5)
        along, across = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        x, y = self.x - self.wound[0], self.y - self.wound[1]
        u, v = x * along[0] + y * along[1], x * across[0] + y * across[1]
        bent = v + 0.012 * np.sin(u * 17)
        slit = np.exp(-((bent / 0.013) ** 2)) * (1 - step(0.25, 0.3, np.abs(u)))
        lips = np.exp(-((bent / 0.05) ** 2)) * (1 - step(0.25, 0.32, np.abs(u)))
        red = np.array([0.42, 0.03, 0.04], np.float32)
        self.color += np.clip(0.35 * lips + 0.75 * slit, 0, 1)[..., None] * (red - self.color)
        self.height += 0.025 * lips - 0.05 * slit
        stitches = np.zeros(self.shape, np.uint8)
        for at in np.linspace(-0.24, -0.02, 5):
            lean = self.rng.uniform(-0.025, 0.025)
            ends = [self.wound + along * (at + s * lean) + across * s * 0.045 for s in (-1, 1)]
            self._line(stitches, ends, 0.008)
        thread = blur(stitches.astype(np.float32) / 255, 0.4)
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
        stain = step(0.5, 1.4, self.noise(0.16, 3)) * 0.8
        color += stain[..., None] * (np.array([0.62, 0.10, 0.09], np.float32) - color)
        ground = blur(self.height, 0.04 * self.unit)
        self._lay(self._soft(inside), color, ground + 0.015 + 0.010 * folds + 0.001 * weave, GAUZE, 0.45)

    def _anywhere(self, reach: float) -> Point:
        return self.rng.uniform(-reach, reach, 2)

    def _region(self, coverage: float, angle: float, rough: float) -> Floats:
        """Signed depth in a region that comes from the direction `angle` and covers this share of the canvas."""
        along = self.x * math.cos(angle) + self.y * math.sin(angle)
        across = -self.x * math.sin(angle) + self.y * math.cos(angle) - self.rng.uniform(-0.25, 0.25)
        bulge = along - self.rng.uniform(0.2, 0.7) * across**2 + rough * self.noise(0.35, 3)
        return bulge - np.quantile(bulge[::4, ::4], 1 - coverage).astype(np.float32)

    def _soft(self, inside: Floats) -> Floats:
        pixel = 1.0 / self.unit
        return step(-pixel, pixel, inside)

    def _line(self, drawn: Image, points: Sequence[Point], width: float) -> None:
        draw_line(drawn, points, self.unit, width * self.unit * self.zoom)

    def _grow(self, drawn: Image, start: Point, angle: float, width: float, length: float) -> None:
        """Draw a vessel that winds, narrows and branches."""
        stride, at, points = 0.03, start, [start]
        while length > 0 and width * self.unit > 0.6:
            angle += self.rng.normal(0, 0.17)
            at = at + stride * np.array([math.cos(angle), math.sin(angle)])
            points.append(at)
            length -= stride
            if self.rng.random() < 0.07 and len(points) > 3:
                fork = self.rng.choice([-1, 1]) * self.rng.uniform(0.5, 0.9)
                self._grow(drawn, at, angle + fork, width * 0.6, length * 0.6)
                width *= 0.9
            self._line(drawn, points[-2:], width * min(1.0, 0.3 + length / 0.2))
