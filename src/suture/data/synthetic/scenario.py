"""Scenarios of generated operations: settings, classes, and the plan of every video, before any pixel.

>>> videos = plan_videos(SyntheticSettings(cases=2, frames=8, shots=2))
>>> [video.id for video in videos]
['case01a', 'case01b', 'case02']
>>> videos[0].cuts
(4,)
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from suture.core.settings import Settings
from suture.data.view import View


class SyntheticClass(NamedTuple):
    """One row of the class table: name, value in the mask, colour."""

    name: str
    value: int
    color: tuple[int, int, int]


# Six colours are from Okabe and Ito. All are distinct for colour-blind readers, also in overlays, and differ from the
# report's pink for errors. A test checks the distances.
CLASSES = (
    SyntheticClass("background-tissue", 0, (187, 187, 187)),
    SyntheticClass("liver", 1, (213, 94, 0)),
    SyntheticClass("fat", 2, (240, 228, 66)),
    SyntheticClass("vessel", 3, (0, 158, 115)),
    SyntheticClass("instrument-shaft", 4, (0, 114, 178)),
    SyntheticClass("instrument-wrist", 5, (86, 180, 233)),
    SyntheticClass("instrument-clasper", 6, (153, 51, 255)),
    SyntheticClass("thread", 7, (230, 159, 0)),
    SyntheticClass("needle", 8, (102, 255, 255)),
    SyntheticClass("gauze", 9, (153, 255, 119)),
)
TISSUE, LIVER, FAT, VESSEL, SHAFT, WRIST, CLASPER, THREAD, NEEDLE, GAUZE = (c.value for c in CLASSES)
OUTSIDE = 255
ENTERING = 1.0  # seconds an instrument takes to come in or to go out


class SyntheticSettings(Settings):
    """Number and content of the generated videos; the same settings give the same bytes."""

    seed: int = Field(0, ge=0)
    cases: int = Field(8, ge=1, le=99)
    frames: int = Field(100, ge=4, description="frames of each video")
    shots: int = Field(3, ge=1, description="shots of each video")
    width: int = Field(256, ge=32)
    height: int = Field(256, ge=32)
    fps: float = Field(5.0, gt=0, le=240)

    @model_validator(mode="after")
    def _enough_frames(self) -> "SyntheticSettings":
        if self.frames < 4 * self.shots:
            raise ValueError(f"frames is {self.frames}, expected at least 4 for each of the {self.shots} shots")
        return self


ToolKind = Literal["grasper", "scissors", "driver"]
ShotKind = Literal["liver", "fat", "wall", "hilum", "outside"]
EventKind = Literal["smoke", "blood", "light", "defocus", "sweep"]


@dataclass(frozen=True)
class Event:
    """An event in frames `first` to `last` that changes the picture without a cut."""

    kind: EventKind
    first: int
    last: int


@dataclass(frozen=True)
class Tool:
    """An instrument in one shot, in the scene from `enter` to `leave` (seconds of the scene)."""

    kind: ToolKind
    seed: tuple[int, ...]
    angle: float
    enter: float
    leave: float


@dataclass(frozen=True)
class Shot:
    """Frames `first` to `last` from one camera position, nearer (below 1) or farther than usual.

    `start` is the scene's time at its first frame.
    """

    first: int
    last: int
    kind: ShotKind
    seed: tuple[int, ...]
    distance: float
    start: float = 0.0
    suturing: bool = False
    gauze: bool = False
    tools: tuple[Tool, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Look:
    """One patient, light and camera."""

    hue: tuple[float, float, float]
    light: tuple[float, float]
    falloff: float
    exposure: float
    noise: float
    zoom: float
    breath: float
    pulse: float
    shaft: float


@dataclass(frozen=True)
class SyntheticVideo:
    """The plan of one video. `bar` is the height of the recorder's menu above the view."""

    id: str
    case: str
    settings: SyntheticSettings
    shots: tuple[Shot, ...]
    view: View | None
    bar: int
    look: Look

    @property
    def cuts(self) -> tuple[int, ...]:
        """First frame of every shot but the first."""
        return tuple(shot.first for shot in self.shots[1:])

    @property
    def excluded(self) -> tuple[tuple[int, int], ...]:
        """First and last frame of each out-of-body stretch."""
        return tuple((shot.first, shot.last) for shot in self.shots if shot.kind == "outside")

    def seconds(self, frame: int) -> float:
        """Time of a frame in the recording."""
        return frame / self.settings.fps


def split_cases(cases: int) -> dict[str, list[str]]:
    """Split cases: about 60 % for training, one for validation, the rest for the test; with few cases, test first."""
    names = [f"case{i + 1:02d}" for i in range(cases)]
    validation = int(cases > 2)
    train = max(1, min(round(0.6 * cases), cases - validation - 1))
    return {"train": names[:train], "val": names[train : train + validation], "test": names[train + validation :]}


def plan_videos(settings: SyntheticSettings) -> tuple[SyntheticVideo, ...]:
    """Plan every video, without rendering anything."""
    return tuple(video for index in range(settings.cases) for video in _plan_case(settings, index))


def _plan_case(settings: SyntheticSettings, index: int) -> list[SyntheticVideo]:
    rng = np.random.default_rng([settings.seed, index])
    case = f"case{index + 1:02d}"
    split = split_cases(settings.cases)
    # The long tail: rare things are in some cases only, but always in a training and in a test case.
    first_of_part = any(part and part[0] == case for part in split.values())
    suturing = index % 3 != 1 or first_of_part
    gauze = case in (split["train"][-1], (split["test"] or split["train"])[-1])
    look = Look(
        hue=tuple(rng.uniform([0.94, 0.88, 0.86], [1.06, 1.1, 1.12]).tolist()),
        light=tuple(rng.uniform(-0.16, 0.16, 2).tolist()),
        falloff=rng.uniform(0.9, 1.7),
        exposure=rng.uniform(0.95, 1.15),
        noise=rng.uniform(0.006, 0.022),
        zoom=rng.uniform(0.85, 1.25),
        breath=rng.uniform(3.0, 4.5),
        pulse=rng.uniform(0.75, 1.1),
        shaft=float(rng.choice([0.07, 0.09, 0.5])),
    )
    bar = max(6, round(0.09 * settings.height)) if index == 3 % settings.cases else 0
    view = _plan_view(rng, settings, circular=index % 3 == 1, bar=bar)
    videos: list[SyntheticVideo] = []
    for part in "ab" if index == 0 else ("",):  # the recorder chopped the first case into two files
        shots = _plan_shots(
            rng,
            settings,
            (settings.seed, index, len(videos)),
            suturing=suturing,
            gauze=gauze,
            outside=index == 2 % settings.cases and part != "a",
            before=videos[-1].shots[-1] if videos else None,
        )
        shots = [_with_events(rng, settings, shot, index + i) for i, shot in enumerate(shots)]
        videos.append(SyntheticVideo(case + part, case, settings, tuple(shots), view, bar, look))
    return videos


def _plan_view(rng: np.random.Generator, settings: SyntheticSettings, circular: bool, bar: int) -> View | None:
    width, height = settings.width, settings.height
    if not circular:
        return View(0, bar, width, height - bar) if bar else None
    short = min(width, height)
    radius = round(rng.uniform(0.47, 0.53) * short)
    cx = width // 2 + round(rng.uniform(-0.02, 0.02) * short)
    cy = height // 2 + round(rng.uniform(-0.02, 0.02) * short)
    left, right = max(0, cx - radius), min(width, cx + radius + 1)
    upper, lower = max(bar, cy - radius), min(height, cy + radius + 1)
    return View(left, upper, right - left, lower - upper, (cx, cy, radius))


def _plan_shots(
    rng: np.random.Generator,
    settings: SyntheticSettings,
    seed: tuple[int, ...],
    suturing: bool,
    gauze: bool,
    outside: bool,
    before: Shot | None,
) -> list[Shot]:
    count = settings.shots + outside
    shares = rng.uniform(0.7, 1.3, count)
    if outside:
        shares[-2] = 0.35  # the scope is drawn out and cleaned shortly before the last shot
    spare = settings.frames - 2 * count
    firsts = [2 * i + int(spare * share) for i, share in enumerate(np.cumsum([0.0, *shares[:-1]]) / shares.sum())]
    lasts = [*(first - 1 for first in firsts[1:]), settings.frames - 1]
    shots: list[Shot] = []
    for i, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        if outside and i == count - 2:
            shots.append(Shot(first, last, "outside", (*seed, i), 1.0))
            continue
        if before is not None and i == 0:  # the second file goes on in the middle of a shot
            start = before.start + before.last / settings.fps - before.first / settings.fps + 1 / settings.fps
            shots.append(replace(before, first=first, last=last, start=start))
            continue
        # Neighbouring shots show other organs from another distance: a cut to the same picture would be none.
        organs: tuple[ShotKind, ...] = ("liver", "fat", "wall", "hilum")
        kinds = [kind for kind in organs if not shots or kind != shots[-1].kind]
        kind = kinds[rng.integers(len(kinds))]
        distance = rng.uniform(0.78, 0.92) if i % 2 else rng.uniform(1.08, 1.25)
        shot = Shot(first, last, kind, (*seed, i), distance)
        at_end = i == count - 1
        shots.append(replace(shot, suturing=suturing and at_end, gauze=gauze and (at_end or i == 0)))
    return shots


def _with_events(rng: np.random.Generator, settings: SyntheticSettings, shot: Shot, offset: int) -> Shot:
    """Add tools and events to a shot."""
    if shot.kind == "outside":
        return shot
    begin, end = shot.first / settings.fps, shot.last / settings.fps
    tools = shot.tools or _plan_tools(rng, shot, end - begin)
    kinds: tuple[EventKind, ...] = ("smoke", "blood", "light", "defocus", "sweep")
    longest = {"smoke": 8.0, "blood": 8.0, "light": 6.0, "defocus": 2.0, "sweep": 1.6}
    events = []
    for k in range(int(rng.integers(1, 3)) if shot.last - shot.first >= 6 else 0):  # one early and perhaps one late
        kind = kinds[(offset + 2 * k) % len(kinds)]
        start = begin + (0.5 * k + rng.uniform(0.08, 0.15)) * (end - begin)
        stop = start + min(longest[kind], 0.35 * (end - begin))
        if frames := [f for f in range(shot.first, shot.last + 1) if start <= f / settings.fps <= stop]:
            events.append(Event(kind, frames[0], frames[-1]))
    return replace(shot, tools=tools, events=tuple(events))


def _plan_tools(rng: np.random.Generator, shot: Shot, seconds: float) -> tuple[Tool, ...]:
    """One to three instruments from different sides; two that stay for suturing."""
    right, left, above = rng.uniform(0.1, 0.9), rng.uniform(2.2, 3.0), rng.uniform(3.8, 5.6)
    tools = []
    for i, angle in enumerate(rng.permutation([right, left, above])[: 2 if shot.suturing else rng.integers(1, 4)]):
        there_at_first = rng.random() < (0.9 if shot.suturing else 0.45)
        enter = shot.start + (-9.0 if there_at_first else rng.uniform(0.1, 0.6) * seconds)
        stays = shot.suturing or rng.random() < 0.5
        leave = math.inf if stays else max(enter, shot.start) + rng.uniform(0.4, 0.9) * seconds
        kind: ToolKind = "driver" if shot.suturing and i == 0 else ("grasper", "scissors")[rng.integers(2)]
        tools.append(Tool(kind, (*shot.seed, i), float(angle), enter, leave))
    return tuple(tools)
