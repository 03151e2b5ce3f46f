"""Rendering of generated operations: a planned video in, frames and masks out.

A shot's scene is painted once on a canvas larger than the frame: colour, height and class of tissue, organs and
vessels. Each frame then looks at the canvas through the camera's pose and the tissue's deformation, lights it, and
lays instruments, blood and smoke over it. All motion is a function of time in seconds, so another frame rate gives
other steps per frame of the same operation. Lengths are in units of the frame's shorter side.

>>> from suture.data.synthetic.scenario import SyntheticSettings, plan_videos
>>> videos = plan_videos(SyntheticSettings(cases=2, frames=8, shots=2, width=64, height=48))
>>> rgb, mask = next(render_video(videos[0]))
>>> rgb.shape, mask.shape
((48, 64, 3), (48, 64))
"""

import math
from collections.abc import Collection, Iterator, Sequence

import cv2
import numpy as np

from suture.data.synthetic.canvas import THREAD_COLOR, Canvas
from suture.data.synthetic.instrument import Instrument
from suture.data.synthetic.paint import Floats, Image, Point, blur, centered_grid, draw_line, mix, noise, step
from suture.data.synthetic.scenario import (
    FAT,
    LIVER,
    NEEDLE,
    OUTSIDE,
    THREAD,
    TISSUE,
    VESSEL,
    EventKind,
    Shot,
    SyntheticVideo,
)

# Shine of each class: liver and vessels are smooth and wet, gauze is dull.
GLOSS = np.zeros(256, np.float32)
GLOSS[[TISSUE, LIVER, FAT, VESSEL, THREAD]] = 0.85, 1.0, 0.6, 1.0, 0.3
FULL_EVENT_S = 8.0
"""Length (s) of a shot in which its event reaches full strength; in a shorter one it stays weak."""


def render_video(video: SyntheticVideo, frames: Collection[int] | None = None) -> Iterator[tuple[Image, Image]]:
    """Yield every frame, or only `frames` in their order, as RGB with its mask.

    The mask holds class values, and 255 outside the view and out of the body.
    """
    for shot in video.shots:
        wanted = [f for f in range(shot.first, shot.last + 1) if frames is None or f in frames]
        if wanted:
            scene = _Scene(video, shot)
            for frame in wanted:
                yield _record(video, *scene.frame(frame), frame)


class _Scene:
    """A shot: the canvas seen through a moving camera, with all that goes on over it."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings = video.settings
        self.video, self.shot = video, shot
        self.shape = settings.height, settings.width
        self.unit = min(self.shape)
        self.begin = shot.first / settings.fps
        self.seconds = (shot.last - shot.first + 1) / settings.fps
        self.canvas = canvas = Canvas(video, shot)
        self.x, self.y = centered_grid(self.shape, self.unit)
        patient, rng = np.random.default_rng([*video.seed, 1]), np.random.default_rng([*shot.seed, 1])
        self.breath_s, self.pulse_s = patient.uniform([3.0, 0.75], [4.5, 1.1]).tolist()
        light_x, light_y = patient.uniform(-0.2, 0.2, 2).tolist()
        dx, dy = self.x - light_x, self.y - light_y
        self.slope_x, self.slope_y = -0.9 * dx, -0.9 * dy  # towards the light, per pixel
        self.falloff = patient.uniform(1.1, 1.4) * shot.zoom / (1 + patient.uniform(2.0, 3.6) * (dx * dx + dy * dy))
        self.heart = rng.uniform(-0.3, 0.3, 2).tolist()
        self.breath_way, self.sweep_way = rng.uniform(-1, 1, 2), rng.uniform(0.05, 0.12, 2)
        self.rates, self.phases = rng.uniform(0.15, 0.45, 3), rng.uniform(0, math.tau, 3)
        self.light = float(rng.choice([0.7, 0.78, 1.22]))
        self.smoke = step(-0.9, 1.6, noise(rng, self.shape, 0.5 * self.unit)).astype(np.float32)
        source = rng.uniform(-0.25, 0.25, 2).tolist()
        self.pool = np.hypot(canvas.x - source[0], canvas.y - source[1]) + 0.035 * canvas.noise(0.2)
        sides = rng.permutation([rng.uniform(0.1, 0.9), rng.uniform(2.2, 3.0), rng.uniform(3.8, 5.6)])
        count = 0 if shot.kind == "outside" else 2 if shot.suturing else rng.integers(1, 4)
        self.instruments = [Instrument(rng, side, self.begin, self.seconds, shot.suturing) for side in sides[:count]]

    def frame(self, frame: int) -> tuple[Floats, Image]:
        """Render the lit picture (0 to 1) and the classes of a frame."""
        time = frame / self.video.settings.fps
        places = self._look_at(time)
        color, height, classes = (
            cv2.remap(layer, *places, how, borderMode=cv2.BORDER_REFLECT_101)
            for layer, how in (
                (self.canvas.color, cv2.INTER_LINEAR),
                (self.canvas.height, cv2.INTER_LINEAR),
                (self.canvas.classes, cv2.INTER_NEAREST),
            )
        )
        if self.shot.event == "blood":  # it spreads from its source; the mask keeps the classes below
            pool = cv2.remap(self.pool, *places, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
            mix(color, (0.40, 0.015, 0.02), 0.93 * step(0, -0.025, pool - 0.05 * (time - self.begin)))
        picture = self._lit(color, height, GLOSS[classes])
        for place, instrument in enumerate(self.instruments):
            if self.shot.suturing and place == 0:
                self._lay_suture(picture, classes, instrument, time)
            instrument.draw(picture, classes, self.falloff, (self.x, self.y), time)
        if smoke := self._strength("smoke", time):
            drift = np.array([[1, 0, self.unit * math.sin(0.2 * time)], [0, 1, 0]])
            haze = cv2.warpAffine(self.smoke, drift, self.shape[::-1], borderMode=cv2.BORDER_REFLECT_101)
            mix(picture, 0.7 * self.falloff[..., None], 0.62 * smoke * haze)
        picture *= 1 + (self.light - 1) * self._strength("light", time)
        if defocus := self._strength("defocus", time):
            picture = blur(picture, 0.014 * self.unit * defocus)
        return picture, classes

    def _strength(self, kind: EventKind, time: float) -> float:
        """Strength of the shot's event, 0 to 1: it rises and falls."""
        if self.shot.event != kind:
            return 0.0
        share = (time - self.begin) / self.seconds
        return min(1, self.seconds / FULL_EVENT_S) * float(step(0.1, 0.35, share) * step(0.7, 0.45, share))

    def _look_at(self, time: float) -> tuple[Floats, Floats]:
        """Place on the canvas of every pixel, by breath, heart, bowel, instruments and a camera held by hand."""
        x, y = self.x - self.heart[0], self.y - self.heart[1]
        beat = 0.09 * math.exp(-((((time / self.pulse_s) % 1) - 0.3) ** 2) / 0.02) * np.exp(-(x**2 + y**2) / 0.05)
        slide = (0.012 * math.sin(math.tau * time / self.breath_s) * self.breath_way).tolist()
        moved_x = self.x + slide[0] + beat * x + 0.006 * np.sin(9 * self.y + 0.9 * time)
        moved_y = self.y + slide[1] + beat * y + 0.006 * np.sin(8 * self.x - 0.7 * time)
        for instrument in self.instruments:  # an instrument draws the tissue under its jaws together
            tip = instrument.jaws(time).tolist()
            x, y = self.x - tip[0], self.y - tip[1]
            pinch = 0.45 * np.exp(-(x**2 + y**2) / 0.007)
            moved_x, moved_y = moved_x + pinch * x, moved_y + pinch * y
        sway = np.sin(self.rates * time + self.phases)
        shift = self.unit * (0.04 * sway[:2] + self.sweep_way * self._strength("sweep", time))
        cos, sin = self.unit * math.cos(0.06 * sway[2]), self.unit * math.sin(0.06 * sway[2])
        to_y, to_x = (shift[::-1] + np.array(self.canvas.shape) / 2).tolist()
        return cos * moved_x - sin * moved_y + to_x, sin * moved_x + cos * moved_y + to_y

    def _lit(self, color: Floats, height: Floats, gloss: Floats) -> Floats:
        """Light from beside the camera: shading by the surface's slope, and wet highlights where it mirrors."""
        gx = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3, scale=self.unit / 8)
        gy = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3, scale=self.unit / 8)
        lengths = np.sqrt((1 + gx * gx + gy * gy) * (1 + self.slope_x**2 + self.slope_y**2))
        facing = (1 - gx * self.slope_x - gy * self.slope_y) / lengths
        off = (gx + 0.5 * self.slope_x + 0.25) ** 2 + (gy + 0.5 * self.slope_y + 0.3) ** 2
        shine = gloss * (0.9 * np.exp(off * -40) + 0.12 * np.exp(off * -5))
        light = (0.22 + 0.85 * np.maximum(facing, 0)) * self.falloff
        return color * light[..., None] + (shine * np.sqrt(self.falloff))[..., None]

    def _lay_suture(self, picture: Floats, classes: Image, tool: Instrument, time: float) -> None:
        """The curved needle in the jaws and the thread from its end to the last stitch."""
        turn = tool.pose(time)[2] + 0.4 * math.sin(0.9 * time)
        arc = turn + math.pi + np.linspace(-2.1, 0.7, 24)[:, None]
        center = tool.jaws(time) + 0.075 * np.array([math.cos(turn), math.sin(turn)])
        needle = center + 0.075 * np.hstack([np.cos(arc), np.sin(arc)])
        s = np.linspace(0, 1, 32)[:, None]
        sag = np.array([0.06 * math.sin(0.7 * time), 0.22])
        thread = (1 - s) * needle[0] + s * self.canvas.wound + 3 * s * (1 - s) * sag
        self._lay_line(picture, classes, thread, 0.008, THREAD_COLOR, THREAD)
        self._lay_line(picture, classes, needle, 0.012, (0.82, 0.84, 0.88), NEEDLE)

    def _lay_line(
        self, picture: Floats, classes: Image, points: Point, width: float, color: Sequence[float], value: int
    ) -> None:
        drawn = np.zeros(self.shape, np.uint8)
        draw_line(drawn, points, self.unit, width * self.unit)
        lit = np.array(color, np.float32) * np.minimum(self.falloff, 1.1)[..., None]
        mix(picture, lit, drawn.astype(np.float32) / 255)
        classes[drawn > 110] = value


def _record(video: SyntheticVideo, picture: Floats, classes: Image, frame: int) -> tuple[Image, Image]:
    """Camera and recorder: the view, sensor noise and the menu."""
    if video.view is not None:
        inside = video.view.mask(classes.shape[1], classes.shape[0])
        picture = picture * blur(inside.astype(np.float32), 0.5)[..., None]
        classes[~inside] = OUTSIDE
    over = np.maximum(picture - 0.75, 0)  # cameras roll bright values off softly
    rng = np.random.default_rng([*video.seed, frame])
    picture = np.minimum(picture, 0.75) + over / (1 + 4 * over) + 0.014 * rng.standard_normal(picture.shape, np.float32)
    rgb = cv2.convertScaleAbs(np.maximum(picture, 0), alpha=255)
    if video.bar:
        rgb[: video.bar] = 26, 30, 38
        text, font = "REC 00:12:47  ZOOM 1.2x  LIGHT 80%", cv2.FONT_HERSHEY_SIMPLEX
        scale = 0.9 * video.settings.width / cv2.getTextSize(text, font, 1.0, 1)[0][0]
        place = video.bar // 3, round(0.68 * video.bar)
        cv2.putText(rgb[: video.bar], text, place, font, scale, (205, 212, 222), 1, cv2.LINE_AA)
    return rgb, classes
