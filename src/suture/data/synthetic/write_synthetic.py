"""Generated operations as a folder in the layout of a user's own data, to try everything without any."""

from collections.abc import Sequence
from concurrent.futures import as_completed
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import cv2
import yaml

from suture.core.errors import UserError
from suture.core.io import filling, write_text
from suture.core.progress import ProgressBar
from suture.core.workers import pool_for
from suture.data.labelling import frame_name
from suture.data.synthetic.render_video import Image, render_video
from suture.data.synthetic.scenario import CLASSES, OUTSIDE, SyntheticSettings, SyntheticVideo, plan_videos, split_cases

Container = Literal["mp4", "png"]
BT709, LIMITED = 1, 1  # the numbers of ISO/IEC 23091-2 for the colour matrix and FFmpeg's for the range


def write_synthetic(
    out: Path,
    settings: SyntheticSettings | None = None,
    container: Container = "mp4",
    workers: int = 1,
    progress: bool = True,
) -> Path:
    """Render a dataset into a new folder: videos, a mask for every frame, dataset.yaml and exclude.csv.

    Args:
        out: The new folder.
        settings: Number and content of the videos.
        container: Video files, or folders of frames.
        workers: Number of processes.
        progress: Show a progress bar.

    >>> write_synthetic(Path("demo"), SyntheticSettings(cases=3))  # doctest: +SKIP
    PosixPath('demo')
    """
    settings = settings or SyntheticSettings()
    if container == "mp4" and (settings.width % 2 or settings.height % 2):
        raise UserError(
            f"size {settings.width}x{settings.height} has an odd side: make both even or choose the container png."
        )
    if out.exists():
        raise UserError(f"{out} is already there: choose another folder or remove it.")
    videos = plan_videos(settings)
    with filling(out) as folder:
        (folder / "videos").mkdir(parents=True)
        (folder / "masks").mkdir()
        _write_videos(folder, videos, container, workers, progress)
        dataset = yaml.safe_dump(dataset_facts(videos), sort_keys=False, default_flow_style=None, width=120)
        write_text(folder / "dataset.yaml", dataset)
        rows = [f"{video.id},{first},{last},out of body" for video in videos for first, last in video.excluded]
        write_text(folder / "exclude.csv", "\n".join(["video,first,last,reason", *rows, ""]))
    return out


def dataset_facts(videos: Sequence[SyntheticVideo]) -> dict[str, Any]:
    """Return the content of dataset.yaml for these videos."""
    cases: dict[str, list[str]] = {}
    for video in videos:
        cases.setdefault(video.case, []).append(video.id)
    classes: list[dict[str, Any]] = [{"name": c.name, "value": c.value, "color": list(c.color)} for c in CLASSES]
    return {
        "format": 1,
        "name": "synthetic",
        "videos": "videos",
        "masks": "masks",
        "classes": [*classes, {"name": "outside", "value": OUTSIDE, "ignore": True}],
        "unpainted": "ignore",
        "cases": cases,
        "split": split_cases(len(cases)),
        "view": {video.id: video.view.to_json() if video.view else "none" for video in videos},
        "exclude": "exclude.csv",
    }


def _write_videos(
    folder: Path, videos: Sequence[SyntheticVideo], container: Container, workers: int, progress: bool
) -> None:
    with (
        ProgressBar(show=progress) as bar,
        pool_for("rendering video", min(workers, len(videos))) as pool,
    ):
        task = bar.add_task("rendering", total=len(videos))
        for job in as_completed([pool.submit(_write_video, folder, video, container) for video in videos]):
            job.result()
            bar.advance(task)


def _write_video(folder: Path, video: SyntheticVideo, container: Container) -> None:
    """Write a video and its masks."""
    names = [frame_name(video.id, number) for number in range(video.settings.frames)]
    if container == "png":
        (folder / "videos" / video.id).mkdir()
        for number, (rgb, mask) in enumerate(render_video(video)):
            _write_png(folder / "videos" / video.id / f"frame_{number:06d}.png", rgb[..., ::-1])
            _write_png(folder / "masks" / f"{names[number]}.png", mask)
        return
    rate = Fraction(video.settings.fps).limit_denominator(1001)
    with av.open(folder / "videos" / f"{video.id}.mp4", "w") as file:
        # x264's macroblock tree differs from run to run on some processors, and the bytes should not.
        options = {"crf": "18", "preset": "veryfast", "mbtree": "0"}
        stream = file.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = video.settings.width, video.settings.height, "yuv420p"
        context = stream.codec_context
        context.time_base, context.thread_count = 1 / rate, 1
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED
        for number, (rgb, mask) in enumerate(render_video(video)):
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(
                format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG", threads=1
            )
            frame.pts, frame.time_base = number, 1 / rate
            file.mux(stream.encode(frame))
            _write_png(folder / "masks" / f"{names[number]}.png", mask)
        file.mux(stream.encode(None))


def _write_png(path: Path, image: Image) -> None:
    _, data = cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 3])
    path.write_bytes(data.tobytes())
