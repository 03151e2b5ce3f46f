"""Scenarios of generated operations: settings, classes, and the plan of every video, before any pixel.

>>> videos = plan_videos(SyntheticSettings(cases=2, frames=8, shots=2))
>>> [video.id for video in videos]
['case01a', 'case01b', 'case02']
>>> videos[0].cuts
(4,)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

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


Organ = Literal["liver", "fat", "wall", "hilum"]
ShotKind = Organ | Literal["outside"]
EventKind = Literal["smoke", "blood", "light", "defocus", "sweep"]
ORGANS: tuple[Organ, ...] = get_args(Organ)
EVENTS: tuple[EventKind, ...] = get_args(EventKind)


@dataclass(frozen=True)
class Shot:
    """Frames `first` to `last` from one camera position, with an event that changes the picture without a cut."""

    first: int
    last: int
    kind: ShotKind
    event: EventKind
    seed: tuple[int, ...]
    zoom: float
    suturing: bool
    gauze: bool


@dataclass(frozen=True)
class SyntheticVideo:
    """The plan of one video. `bar` is the height of the recorder's menu above the view."""

    id: str
    case: str
    settings: SyntheticSettings
    seed: tuple[int, ...]
    """Seed of the patient, light and camera."""
    shots: tuple[Shot, ...]
    view: View | None
    bar: int

    @property
    def cuts(self) -> tuple[int, ...]:
        """First frame of every shot but the first."""
        return tuple(shot.first for shot in self.shots[1:])

    @property
    def excluded(self) -> tuple[tuple[int, int], ...]:
        """First and last frame of each out-of-body stretch."""
        return tuple((shot.first, shot.last) for shot in self.shots if shot.kind == "outside")


def split_cases(cases: int) -> dict[str, list[str]]:
    """Split cases: about 60 % for training, one for validation, the rest for the test; with few cases, test first."""
    names = [f"case{i + 1:02d}" for i in range(cases)]
    validation = int(cases > 2)
    train = max(1, min(round(0.6 * cases), cases - validation - 1))
    return {"train": names[:train], "val": names[train : train + validation], "test": names[train + validation :]}


def plan_videos(settings: SyntheticSettings) -> tuple[SyntheticVideo, ...]:
    """Plan every video, without rendering anything."""
    return tuple(video for index in range(settings.cases) for video in _plan_case(settings, index))


def _plan_case(settings: SyntheticSettings, index: int) -> Iterator[SyntheticVideo]:
    seed = settings.seed, index
    rng = np.random.default_rng(seed)
    case = f"case{index + 1:02d}"
    bar = max(6, round(0.09 * settings.height)) if index == 3 % settings.cases else 0
    view = _plan_view(rng, settings, circular=index % 3 == 1, bar=bar)
    for part in "ab" if index == 0 else ("",):  # the recorder chopped the first case into two files
        outside = index == 2 % settings.cases and part != "a"
        shots = tuple(_plan_shots(rng, settings, case, outside))
        yield SyntheticVideo(case + part, case, settings, seed, shots, view, bar)


def _plan_view(rng: np.random.Generator, settings: SyntheticSettings, circular: bool, bar: int) -> View | None:
    width, height = settings.width, settings.height
    if not circular:
        return View(0, bar, width, height - bar) if bar else None
    radius = round(rng.uniform(0.47, 0.53) * min(width, height))
    cx, cy = width // 2, height // 2
    left, right = max(0, cx - radius), min(width, cx + radius)
    upper, lower = max(bar, cy - radius), min(height, cy + radius)
    return View(left, upper, right - left, lower - upper, (cx, cy, radius))


def _plan_shots(rng: np.random.Generator, settings: SyntheticSettings, case: str, outside: bool) -> Iterator[Shot]:
    split = split_cases(settings.cases)
    # The long tail: rare things are in some cases only, but always in a training and in a test case.
    suturing = int(case[4:]) % 3 != 2 or any(part and part[0] == case for part in split.values())
    gauze = case in (split["train"][-1], (split["test"] or split["train"])[-1])
    count = settings.shots + outside
    shares = rng.uniform(0.7, 1.3, count)
    if outside:
        shares[-2] = 0.35  # the scope is drawn out and cleaned shortly before the last shot
    spare = settings.frames - 2 * count
    firsts = [2 * i + int(spare * share) for i, share in enumerate(np.cumsum([0.0, *shares]) / shares.sum())]
    organ = int(rng.integers(len(ORGANS)))
    for i in range(count):
        # Neighbouring shots show other organs from another distance: a cut to the same picture would be none.
        organ = (organ + int(rng.integers(1, len(ORGANS)))) % len(ORGANS)
        is_last = i == count - 1
        yield Shot(
            first=firsts[i],
            last=settings.frames - 1 if is_last else firsts[i + 1] - 1,
            kind="outside" if outside and i == count - 2 else ORGANS[organ],
            event=EVENTS[(int(case[4:]) + i) % len(EVENTS)],
            seed=tuple(rng.integers(2**31, size=2).tolist()),
            zoom=rng.uniform(1.1, 1.3) if i % 2 else rng.uniform(0.8, 0.95),
            suturing=suturing and is_last,
            gauze=gauze and i in (0, count - 1),
        )
