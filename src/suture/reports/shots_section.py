"""Timelines of the training videos: shots, the curve of their cuts, and labelled frames."""

from typing import Any

import numpy as np
from markupsafe import Markup

from suture.data.dataset import Video
from suture.data.shots import ShotSettings, find_shots
from suture.reports.charts import WIDE, Series, line_chart
from suture.reports.frame_choice import evenly
from suture.reports.gallery import data_uri, view_photo
from suture.reports.report_context import ReportContext

MAX_CURVE_FRAMES = 600
"""Frames that are read for shot curves, over all videos."""
MAX_SHOWN_CUTS = 5
"""Cuts of a video whose frames are shown."""
PHOTO_SIDE = 112


def shots_section(context: ReportContext) -> list[dict[str, Any]]:
    """Return the training videos of the first run, the first of them with their shot curves."""
    run, dataset = context.first, context.dataset
    videos = {name: video for name, video in run.videos("train").items() if run.shots.get(name)}
    rows = []
    left = MAX_CURVE_FRAMES
    with context.progress("draw the shots", len(videos)) as progress:
        for name, record in videos.items():
            starts, length = run.shots[name], record["frames"]
            row = {
                "video": name,
                "case": record["case"],
                "frames": length,
                "shots": list(zip(starts, [*starts[1:], length], strict=True)),
                "labelled": run.labelled[name],
                "excluded": record["excluded"],
                "curve": "",
                "cuts": [],
            }
            if dataset is not None and len(dataset[name].usable) <= left:
                left -= len(dataset[name].usable)
                row["curve"] = _curve(dataset[name], run.config.data.shots)
                row["cuts"] = _cuts(dataset[name], starts) if context.frames else []
            rows.append(row)
            progress(1)
    return rows


def _curve(video: Video, settings: ShotSettings) -> Markup:
    """Draw the change between frames and the threshold for a cut, with gaps at excluded frames."""
    shots = find_shots(video, settings)
    indices = np.array(shots.frames[1:], float)
    gaps = np.flatnonzero(video.torn(shots.frames))
    series = []
    for number, (name, values) in enumerate({"change": shots.curve, "threshold": shots.threshold}.items()):
        x, y = np.insert(indices, gaps, indices[gaps]), np.insert(values.astype(float), gaps, np.nan)
        series.append(Series(name, number, x.tolist(), y.tolist()))
    return line_chart(video.id, series, "frame", "change", x_range=(0, len(video)), size=(WIDE, 110))


def _cuts(video: Video, starts: list[int]) -> list[list[tuple[int, str]]]:
    """Return pictures of the frames before and after some cuts."""
    shown = [starts[1:][i] for i in evenly(len(starts) - 1, MAX_SHOWN_CUTS)]
    pairs = [(max(index for index in video.usable if index < cut), cut) for cut in shown]
    return [[(index, data_uri(view_photo(video, index, PHOTO_SIDE))) for index in pair] for pair in pairs]
