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
from numpy.typing import NDArray

from suture.data.synthetic.canvas import MARGIN, THREAD_COLOR, Canvas
from suture.data.synthetic.instrument import Instrument
from suture.data.synthetic.paint import (
    EXPOSURE,
    Floats,
    Image,
    Point,
    blur,
    centered_grid,
    draw_line,
    ease,
    noise,
    remap,
    smear,
    step,
)
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
from suture.data.view import View

GRID = 24  # places in each direction at which the deformation is computed
RAMP: dict[EventKind, float] = {"smoke": 2.5, "light": 0.5, "defocus": 0.6, "sweep": 0.7}  # seconds to full strength
# Shine of each class: liver and vessels are smooth and wet, gauze is dull.
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


class _Scene:
    """A shot inside the body: the canvas seen through a moving camera, with all that goes on over it."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings, look = video.settings, video.look
        self.video, self.shot = video, shot
        self.width, self.height = settings.width, settings.height
        self.unit = min(self.width, self.height)
        rng = np.random.default_rng([*shot.seed, 1])
        canvas = Canvas(video, shot)
        self.color, self.relief, self.classes = canvas.color, canvas.height, canvas.classes
        self.wound = canvas.wound
        self.x, self.y = centered_grid((self.height, self.width), self.unit)
        # Organs slide with the breath more than the wall does.
        organs = blur(np.isin(canvas.classes, (LIVER, FAT)).astype(np.float32), 0.06 * self.unit)
        middle = (organs.shape[1] - 1) / 2, (organs.shape[0] - 1) / 2
        seen = cv2.getRectSubPix(organs, (self.width, self.height), middle)
        self.mobility = cv2.resize(seen, (GRID, GRID), interpolation=cv2.INTER_AREA)
        self.breath_way = rng.uniform(-1, 1, 2) * (0.5, 1.0)
        self.heart: Point = rng.uniform(-0.3, 0.3, 2)
        self.drift = rng.uniform(0.02, 0.07, 3), rng.uniform(0, math.tau, 3)
        self.sweep_way = rng.choice([-1, 1], 2) * rng.uniform(0.05, 0.12, 2)
        self.instruments = [Instrument(tool, video) for tool in shot.tools]
        offset = np.array(look.light) + rng.uniform(-0.1, 0.1, 2)
        dx, dy = self.x - float(offset[0]), self.y - float(offset[1])
        self.slope_x, self.slope_y = -dx * 0.9, -dy * 0.9  # towards the light, per pixel
        self.length = np.sqrt(1 + self.slope_x**2 + self.slope_y**2)
        gain = look.exposure / shot.distance  # the light is at the camera, so what is near is bright
        self.falloff = gain * 1.2 / (1 + look.falloff * 2.2 * (dx * dx + dy * dy))
        margin = (self.height * 2, self.width * 2)
        self.smoke = step(-0.9, 1.6, noise(rng, margin, 0.5 * self.unit)) if self._has("smoke") else None
        source = rng.uniform(-0.25, 0.25, 2).tolist()
        self.pool = np.hypot(canvas.x - source[0], (canvas.y - source[1]) * 1.3) + 0.035 * canvas.noise(0.2)
        self.light = float(rng.choice([0.7, 0.78, 1.22]))

    def frame(self, frame: int) -> tuple[Floats, Image]:
        """Render the lit picture (0 to 1) and the classes of a frame."""
        now = self.video.seconds(frame)
        time = self.shot.start + now - self.video.seconds(self.shot.first)
        sweep = self._strength("sweep", now)
        map_x, map_y = self._look_at(time, sweep)
        color, height = remap(self.color, map_x, map_y), remap(self.relief, map_x, map_y)
        classes = remap(self.classes, map_x, map_y, cv2.INTER_NEAREST)
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
        defocus = self._strength("defocus", now)
        if defocus > 0.05:
            picture = blur(picture, 0.014 * self.unit * defocus)
        if sweep:
            speed = (self._strength("sweep", now) - self._strength("sweep", now - EXPOSURE)) * self.sweep_way
            picture = smear(picture, speed * self.unit)
        return picture, classes

    def _has(self, kind: EventKind) -> bool:
        return any(event.kind == kind for event in self.shot.events)

    def _strength(self, kind: EventKind, now: float) -> float:
        """Strength of an event of this shot, 0 to 1: it rises and falls, and a short one stays weak."""
        strength = 0.0
        for event in self.shot.events:
            if event.kind == kind:
                half_step = 0.5 / self.video.settings.fps
                start, end = self.video.seconds(event.first) - half_step, self.video.seconds(event.last) + half_step
                ramp = min(RAMP[kind], 0.45 * (end - start))
                peak = min(1.0, (end - start) / (2 * RAMP[kind]))
                strength = max(strength, peak * ease((now - start) / ramp) * ease((end - now) / ramp))
        return strength

    def _deform(self, x: Floats, y: Floats, time: float) -> tuple[Floats, Floats]:
        """Displacement of the tissue at these places by breath, heart, bowel and instruments."""
        look = self.video.look
        breath = math.sin(math.tau * time / look.breath) + 0.3 * math.sin(2 * math.tau * time / look.breath + 1)
        beat = math.exp(-((((time / look.pulse) % 1) - 0.3) ** 2) / 0.02)
        from_x, from_y = x - self.heart[0], y - self.heart[1]
        pulse = 0.09 * beat * np.exp(-(from_x**2 + from_y**2) / 0.05)
        slide = 0.018 * breath * (0.35 + self.mobility)
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
        """Place on the canvas of every pixel of the frame."""
        shift_x, shift_y, angle, scale = self._camera(time, sweep)
        ys, xs = np.mgrid[:GRID, :GRID].astype(np.float32)
        x = ((xs + 0.5) / GRID - 0.5) * self.width / self.unit
        y = ((ys + 0.5) / GRID - 0.5) * self.height / self.unit
        moved = self._deform(x, y, time)
        grid = cv2.resize(np.dstack(moved).astype(np.float32), (self.width, self.height), interpolation=cv2.INTER_CUBIC)
        cos, sin = math.cos(angle) * scale * self.unit, math.sin(angle) * scale * self.unit
        rows, columns = self.classes.shape
        x, y = self.x + grid[..., 0], self.y + grid[..., 1]
        to_x, to_y = shift_x * self.unit + columns / 2, shift_y * self.unit + rows / 2
        return cos * x - sin * y + to_x, sin * x + cos * y + to_y

    def _bleed(
        self, color: Floats, height: Floats, gloss: Floats, map_x: Floats, map_y: Floats, now: float
    ) -> tuple[Floats, Floats, Floats]:
        """Spread blood from its source, dark, flat and wet; the mask keeps the classes below."""
        start = min(self.video.seconds(event.first) for event in self.shot.events if event.kind == "blood")
        reach = 0.36 * (1 - math.exp(-max(now - start, 0) / 3.5))
        if reach <= 0:
            return color, height, gloss
        pool = remap(self.pool, map_x, map_y)
        alpha = (1 - step(reach - 0.025, reach, pool)) * 0.93
        red = np.array([0.40, 0.015, 0.02], np.float32)
        color += alpha[..., None] * (red - color)
        return color, height + 0.8 * alpha * (blur(height, 0.02 * self.unit) - height), gloss + 0.3 * alpha

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
        for instrument in self.instruments:
            tip, shaft, _, _ = instrument.pose(time)
            back = tip - 2 * np.array([math.cos(shaft), math.sin(shaft)])
            points = np.array([back, tip, instrument.jaws(time)]) + np.array([0.02, 0.05])
            draw_line(small, points, scale, 1.7 * instrument.radius * scale[0])
        if small.any():
            soft = cv2.GaussianBlur(small.astype(np.float32) / 255, (0, 0), 0.02 * self.unit / 4 + 0.5)
            color *= 1 - 0.55 * cv2.resize(soft, (self.width, self.height))[..., None]

    def _lay_suture(self, picture: Floats, classes: Image, tool: Instrument, time: float) -> None:
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
        begins = (1 - s) ** 3 * end + 3 * s * (1 - s) ** 2 * (end + sag)
        thread = begins + 3 * s * s * (1 - s) * (stitch + sag) + s**3 * stitch
        self._lay_line(picture, classes, thread + curl, 0.008, THREAD_COLOR, THREAD)
        self._lay_line(picture, classes, needle, 0.012, (0.82, 0.84, 0.88), NEEDLE)

    def _lay_line(
        self, picture: Floats, classes: Image, points: Point, width: float, color: Sequence[float], value: int
    ) -> None:
        drawn = np.zeros((self.height, self.width), np.uint8)
        draw_line(drawn, points, self.unit, width * self.unit)
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
    """A shot outside the patient: drapes, a lamp and gloves, far out of focus."""

    def __init__(self, video: SyntheticVideo, shot: Shot):
        settings = video.settings
        rng = np.random.default_rng(shot.seed)
        self.video, self.unit = video, min(settings.width, settings.height)
        shape = (round(settings.height * MARGIN), round(settings.width * MARGIN))
        cloth = noise(rng, shape, 0.25 * self.unit, 2)[..., None]
        picture = np.array([0.10, 0.36, 0.40], np.float32) * (1 + 0.3 * cloth)
        for color, size in (((0.95, 0.97, 1.0), 0.16), ((0.85, 0.80, 0.70), 0.22), ((0.62, 0.64, 0.70), 0.12)):
            x, y = (rng.uniform(0.2, 0.8, 2) * shape[::-1]).astype(int)
            axes = (rng.uniform(0.7, 1.6, 2) * size * self.unit).astype(int)
            cv2.ellipse(picture, (int(x), int(y)), axes.tolist(), rng.uniform(0, 180), 0, 360, color, -1)
        self.picture = blur(picture, 0.035 * self.unit)
        self.mask = np.full((settings.height, settings.width), OUTSIDE, np.uint8)

    def frame(self, frame: int) -> tuple[Floats, Image]:
        time = self.video.seconds(frame)
        height, width = self.mask.shape
        room_x, room_y = self.picture.shape[1] - width, self.picture.shape[0] - height
        x, y = room_x * (0.5 + 0.5 * math.sin(0.8 * time)), room_y * (0.5 + 0.5 * math.sin(0.6 * time))
        moved = cv2.warpAffine(self.picture, np.array([[1, 0, -x], [0, 1, -y]]), (width, height))
        return moved, self.mask.copy()


class _Finish:
    """Camera and recorder: sensor noise, the round view, the overlay bar."""

    def __init__(self, video: SyntheticVideo):
        settings = video.settings
        self.video = video
        self.shape = (settings.height, settings.width)
        rng = np.random.default_rng([*video.shots[0].seed, 2])
        margin = (settings.height + 64, settings.width + 64, 3)
        grain = rng.standard_normal(margin, np.float32)
        self.grain = (0.6 * grain + 0.4 * grain[..., 1:2]) * video.look.noise
        self.opening = self._opening(video.view) if video.view else None
        self.menu = self._menu(settings.width, video.bar) if video.bar else None

    def __call__(self, picture: Floats, classes: Image, frame: int) -> tuple[Image, Image]:
        height, width = self.shape
        x, y = np.random.default_rng([frame, self.video.settings.frames]).integers(0, 65, 2)
        if self.opening is not None:
            soft, outside = self.opening
            picture = picture * soft[..., None] + 0.012
            classes[outside] = OUTSIDE
        over = np.maximum(picture - 0.75, 0)  # cameras roll bright values off softly
        picture = np.minimum(picture, 0.75) + over / (1 + 4 * over) + self.grain[y : y + height, x : x + width]
        rgb = cv2.convertScaleAbs(np.maximum(picture, 0), alpha=255)
        if self.menu is not None:
            rgb[: self.menu.shape[0]] = self.menu
        return rgb, classes

    def _opening(self, view: View) -> tuple[Floats, NDArray[np.bool_]]:
        """Compute the light through the view, with a soft round edge, and the pixels outside."""
        inside = np.zeros(self.shape, bool)
        view.crop(inside)[:] = True
        soft = np.ones(self.shape, np.float32)
        if view.circle is not None:
            cx, cy, radius = view.circle
            ys, xs = np.ogrid[: self.shape[0], : self.shape[1]]
            distance = np.hypot(xs - cx, ys - cy).astype(np.float32)
            inside &= distance <= radius
            soft = np.clip(radius + 0.5 - distance, 0, 1)
        return soft, ~inside

    def _menu(self, width: int, height: int) -> Image:
        """Draw the recorder's status line: dark, with text and a recording light."""
        drawn = np.full((height, width, 3), (26, 30, 38), np.uint8)
        drawn[-1] = (70, 80, 95)
        text, font = "REC 00:12:47  ZOOM 1.2x  LIGHT 80%", cv2.FONT_HERSHEY_SIMPLEX
        (length, _), _ = cv2.getTextSize(text, font, 1.0, 1)
        scale = min(height / 45, (width - 1.2 * height) / length)
        cv2.circle(drawn, (height // 2, height // 2), max(1, height // 5), (220, 40, 40), -1, cv2.LINE_AA)
        cv2.putText(drawn, text, (height, round(0.68 * height)), font, scale, (205, 212, 222), 1, cv2.LINE_AA)
        return drawn
