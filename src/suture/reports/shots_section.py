"""The training videos as timelines: shots, the curve their cuts are from, and the labelled frames."""

from typing import Any

from suture.data.dataset import Video
from suture.data.shots import find_shots
from suture.reports.charts import timeline
from suture.reports.context import Context
from suture.reports.overlays import data_uri, evenly, scene
from suture.training.callbacks import bar

_CURVE_FRAMES = 600
"""Frames that are read for the curves of cuts; the shots themselves are known from the run."""
_CUTS = 5
"""Cuts of a video whose frames are shown."""
_SIDE = 112


def shots_section(context: Context) -> list[dict[str, Any]]:
    """Every training video of the first run; the first of them with the curve their cuts are from."""
    run, dataset = context.first, context.dataset
    videos = run.videos("train")
    drawn = []
    left = _CURVE_FRAMES
    with bar("draw the shots", len(videos), context.console) as (progress, task):
        for name, facts in videos.items():
            progress.advance(task)
            starts = run.shots.get(name)
            if not starts:
                continue
            curve, cuts = None, []
            if dataset is not None and len(dataset[name].usable) <= left:
                video = dataset[name]
                left -= len(video.usable)
                found = find_shots(video, run.config.data.shots)
                curve = found.frames[1:], found.curve, found.threshold, video.torn(found.frames)
                cuts = _cuts(video, starts) if context.frames else []
            labelled = run.labelled(name)
            drawn.append(
                {
                    "video": name,
                    "case": facts["case"],
                    "frames": facts["frames"],
                    "shots": len(starts),
                    "labelled": len(labelled),
                    "timeline": timeline(name, facts["frames"], starts, labelled, facts["excluded"], curve),
                    "cuts": cuts,
                }
            )
    return drawn


def _cuts(video: Video, starts: list[int]) -> list[list[tuple[int, str]]]:
    """Pictures of the frames before and after some cuts."""
    shown = [starts[1:][i] for i in evenly(len(starts) - 1, _CUTS)]
    before = {cut: max(index for index in video.usable if index < cut) for cut in shown}
    return [[(index, data_uri(scene(video, index, _SIDE))) for index in (before[cut], cut)] for cut in shown]
