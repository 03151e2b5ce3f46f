"""Drawing of a video's shots, for people to judge the cuts."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

import cv2
import numpy as np

from suture.core.text import number
from suture.data.dataset import Video
from suture.data.shots import Shots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_INCHES = 14
_CURVE_INCHES = 2.6
_MAX_FRAMES, _FRAMES_PER_ROW = 24, 12
_MAX_CUTS = 10
"""Cuts whose frames are shown; of more, some are taken evenly."""
_TINTS = ("white", "0.94")


def draw_shots(video: Video, shots: Shots, labelled: Iterable[int] = ()) -> "Figure":
    """Draw frames from all over the video, and below them the curve with its cuts and labelled frames.

    >>> draw_shots(video, find_shots(video)).savefig("shots.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure  # on first use: a run's start would take half a second longer

    shown = _choose_frames(shots)
    rows = max(1, -(-len(shown) // _FRAMES_PER_ROW))
    height = rows * (_WIDTH_INCHES / _FRAMES_PER_ROW * video.view.height / video.view.width + 0.3)
    figure = Figure(figsize=(_WIDTH_INCHES, height + _CURVE_INCHES), layout="constrained")
    halves = figure.add_gridspec(2, 1, height_ratios=[height, _CURVE_INCHES])
    grid = halves[0].subgridspec(rows, _FRAMES_PER_ROW)
    axes = figure.add_subplot(halves[1])
    for place, index in enumerate(shown):
        picture = figure.add_subplot(grid[divmod(place, _FRAMES_PER_ROW)])
        picture.imshow(_thumbnail(video, index))
        is_cut = index in shots.starts[1:]
        color = "tab:red" if is_cut else "black"
        picture.set_title(f"{'cut at ' if is_cut else ''}{index}", fontsize=8, pad=3, color=color)
        picture.set(xticks=[], yticks=[])
        picture.spines[:].set_visible(False)
        picture.spines["left"].set(visible=is_cut, color=color, linewidth=3)
    for shot, start in enumerate(shots.starts):
        axes.axvspan(start, shots.members(shot)[-1] + 1, color=_TINTS[shot % 2], linewidth=0)
    torn = np.flatnonzero(video.torn(shots.frames))  # the lines begin anew behind excluded frames
    frames, curve, threshold = (
        np.insert(np.asarray(values, float), torn, np.nan)
        for values in (shots.frames[1:], shots.curve, shots.threshold)
    )
    axes.plot(frames, curve, color="black", linewidth=0.8, label="distance")
    axes.plot(frames, threshold, color="tab:orange", linewidth=1, label="threshold")
    cuts = list(shots.starts[1:])
    axes.vlines(cuts, 0, 1, color="tab:red", linewidth=1, alpha=0.7, label="cut", transform=axes.get_xaxis_transform())
    excluded, ticks = sorted(video.excluded), list(labelled)
    axes.plot(excluded, np.zeros(len(excluded)), "x", color="tab:blue", markersize=4, label="excluded")
    axes.plot(ticks, np.zeros(len(ticks)), "^", color="tab:green", markersize=5, clip_on=False, label="labelled")
    axes.set(xlim=(0, max(1, len(video) - 1)), ylim=(0, None), xlabel="frame", ylabel="distance of the histograms")
    axes.set_title(f"{video.id}: {number(len(shots), 'shot')}", fontsize=10, loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=5, frameon=False)
    return figure


def _choose_frames(shots: Shots) -> list[int]:
    """Choose the frames on both sides of cuts, and others evenly between."""
    cuts = shots.starts[1:]
    count = min(len(cuts), _MAX_CUTS)
    some = [cuts[place * len(cuts) // count] for place in range(count)]
    sides = {shots.frames[bisect_left(shots.frames, cut) - before] for cut in some for before in (0, 1)}
    others = [index for index in shots.frames if index not in sides]
    free = min(len(others), _MAX_FRAMES - len(sides))
    return sorted(sides | {others[(2 * place + 1) * len(others) // (2 * free)] for place in range(free)})


def _thumbnail(video: Video, index: int) -> np.ndarray:
    frame = video.view.crop(video.read(index))
    scale = min(1, 128 / max(frame.shape[:2]))
    return cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
