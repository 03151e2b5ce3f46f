"""Videos without truth: what the runs see in them, how sure they are, how steady, and what to label next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from suture.data.dataset import Video
from suture.data.shots import find_shots
from suture.reports.charts import WIDE, Series, area_chart, line_chart
from suture.reports.context import Context
from suture.reports.inference_cache import Place, Watched
from suture.reports.overlays import EVENLY, NEXT, Gallery, Panel, by_video, evenly, far_apart
from suture.reports.scores_section import percent
from suture.training.callbacks import bar

_WATCHED = 900
"""Frames that each run looks at, over all videos."""
_LEAST = 40
"""Frames of every video at least."""
_SHOT_FRAMES = 3000
"""Shots are looked for in videos up to this length: every frame has to be read."""
_NEXT = 8
"""Frames that are suggested for labelling."""
_SAMPLES = 6
_CURVES = (
    ("confidence", "confidence: the probability of the predicted class, mean over the view"),
    ("entropy", "entropy of the class probabilities: 100 is as unsure as can be"),
    ("consistency", "consistency: mean IoU of neighbouring frames' predictions"),
)


@dataclass(frozen=True)
class Footage:
    """What the runs say of the videos."""

    videos: dict[str, Video]
    watched: dict[str, dict[int, Watched]]
    """By video and number of the run."""
    shots: dict[str, tuple[int, ...]]
    """First frames of the shots, of videos in which they were looked for."""
    next: dict[Place, float]
    """Frames to label next, and how confident the runs are in them; the least confident first."""


def watch_footage(context: Context) -> Footage | None:
    """Let every finished run look at the videos; None where there are none."""
    if not context.footage or not context.models:
        return None
    videos = {video.id: video for video in context.footage}
    most = max(_LEAST, _WATCHED // len(videos))
    indices = {name: looked_at(video.usable, most) for name, video in videos.items()}
    watched: dict[str, dict[int, Watched]] = {name: {} for name in videos}
    total = sum(map(len, indices.values()))
    for number, model in context.models.items():
        with bar(f"watch with {model.run.name}", total, context.console) as (progress, task):
            for name, video in videos.items():
                watched[name][number] = model.watch(video, indices[name], lambda done: progress.advance(task, done))
    short = {name: video for name, video in videos.items() if len(video.usable) <= _SHOT_FRAMES}
    shots = {}
    with bar("find shots", sum(len(video.usable) for video in short.values()), context.console) as (progress, task):
        for name, video in short.items():
            found = find_shots(video, context.first.config.data.shots, lambda done: progress.advance(task, done))
            shots[name] = found.starts
    confidence = {
        (name, index): float(np.mean([of_run[number].confidence[place] for number in of_run]))
        for name, of_run in watched.items()
        for place, index in enumerate(indices[name])
    }
    return Footage(videos, watched, shots, least_confident(confidence, {n: len(v) for n, v in videos.items()}, _NEXT))


def looked_at(usable: Sequence[int], most: int) -> list[int]:
    """All frames, or pairs of neighbours evenly over the video: steadiness needs two frames that follow each other.

    >>> looked_at(range(10), 4)
    [0, 1, 5, 6]
    """
    if len(usable) <= most:
        return list(usable)
    return [index for start in evenly(len(usable), most // 2) for index in usable[start : start + 2]]


def least_confident(confidence: Mapping[Place, float], lengths: Mapping[str, int], count: int) -> dict[Place, float]:
    """The frames with the least confidence, none beside another: a neighbour teaches hardly anything new.

    >>> least_confident({("a", 0): 0.9, ("a", 1): 0.5, ("a", 2): 0.6, ("a", 30): 0.7}, {"a": 31}, 2)
    {('a', 1): 0.5, ('a', 30): 0.7}
    """
    order = sorted(confidence, key=lambda place: (confidence[place], place))
    least = {name: max(5, length // 25) for name, length in lengths.items()}
    return {place: confidence[place] for place in far_apart(order, least, count)}


def footage_section(context: Context, found: Footage | None) -> dict[str, Any] | None:
    """The numbers and charts of the page's section."""
    if found is None:
        return None
    return {
        "videos": [_video(context, found, name) for name in found.videos],
        "next": [
            {"video": name, "index": index, "time": _time(found.videos[name], index), "confidence": sure}
            for (name, index), sure in found.next.items()
        ],
    }


def footage_pictures(context: Context, found: Footage | None) -> Gallery | None:
    """The least confident frames, and some evenly from everywhere."""
    if found is None:
        return None
    everywhere = [
        (name, video.usable[i])
        for name, video in found.videos.items()
        for i in evenly(len(video.usable), max(1, _SAMPLES // len(found.videos)))
    ][: 2 * _SAMPLES]
    chosen: dict[Place, list[str]] = {place: [NEXT] for place in found.next}
    for place in everywhere:
        chosen.setdefault(place, []).append(EVENLY)
    frames = by_video(sorted(chosen))
    panels = []
    with bar("paint videos without truth", len(chosen) * len(context.models), context.console) as (progress, task):
        for model in context.models.values():
            masks = dict(model.masks(found.videos, frames, lambda done: progress.advance(task, done)))
            panels.append(Panel(model.run.name, "prediction", masks))
    notes = {place: f"mean confidence {percent(sure)} %" for place, sure in found.next.items()}
    return Gallery(found.videos, chosen, panels, notes)


def _video(context: Context, found: Footage, name: str) -> dict[str, Any]:
    video, watched, starts = found.videos[name], found.watched[name], found.shots.get(name, ())
    first = next(iter(watched.values()))
    cuts = starts[1:]
    return {
        "name": name,
        "frames": len(video),
        "watched": len(first.indices),
        "shots": len(starts) or None,
        "classes": np.flatnonzero(sum(of_run.areas.sum(0) for of_run in watched.values())).tolist(),
        "runs": [
            {
                "number": number,
                "confidence": float(of_run.confidence.mean()),
                "entropy": float(of_run.entropy.mean()),
                "consistency": None if np.isnan(of_run.consistency).all() else float(np.nanmean(of_run.consistency)),
                "areas": area_chart(
                    f"{name}, {context.runs[number].name}",
                    of_run.indices,
                    of_run.areas,
                    context.classes,
                    "frame",
                    x_range=(0, len(video) - 1),
                    height=190,
                    cuts=cuts,
                ),
            }
            for number, of_run in watched.items()
        ],
        "curves": [
            (title, chart) for key, title in _CURVES if (chart := _curve(context, watched, key, len(video), cuts))
        ],
    }


def _curve(context: Context, watched: Mapping[int, Watched], key: str, length: int, cuts: Sequence[int]) -> Markup:
    series = []
    for number, of_run in watched.items():
        values = 100 * getattr(of_run, key)
        known = np.flatnonzero(np.isfinite(values))
        series.append(Series(context.runs[number].name, number, [of_run.indices[i] for i in known], values[known]))
    return line_chart(
        "without truth", series, "frame", key, (0, 100), x_range=(0, length - 1), width=WIDE, height=130, cuts=cuts
    )


def _time(video: Video, index: int) -> str | None:
    """When a frame is shown, where the video has a clock."""
    if video.file is None:
        return None
    minutes, rest = divmod(float(video.file.times[index]), 60)
    return f"{int(minutes)}:{rest:04.1f}"
