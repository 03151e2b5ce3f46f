"""The report: one HTML file about one run, or about several side by side, that opens offline."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.markup import escape

import suture
from suture.data.classes import default_colors
from suture.data.dataset import Dataset
from suture.data.labelling import Labelling
from suture.data.shots import find_shots
from suture.errors import UserError
from suture.evaluation.evaluate import Frames
from suture.evaluation.protocols import COMPLETION
from suture.files import write_text
from suture.report.charts import STYLES, Series, line_chart, timeline
from suture.report.facts import RunFacts, read_runs
from suture.report.pictures import (
    Judge,
    Panel,
    Place,
    data_uri,
    frame_iou,
    pick,
    pictures,
    predictions,
    sample,
    scene,
)
from suture.report.pseudo import PseudoQuality, native, over_distance, pseudo_quality
from suture.report.scores import COLUMNS, SETS, overall, per_class, per_video, percent, sets
from suture.runs.callbacks import bar
from suture.runs.run import open_data

_JUDGED = 60
"""Frames of new videos among which the worst and best are sought."""
_CURVE_FRAMES = 600
"""Frames that are read for the curves of cuts; the shots themselves are known from the run."""
_CUTS = 5
"""Cuts of a video whose frames are shown."""
_CUT_SIDE = 112


def write_report(
    runs: Sequence[Path], out: Path | None = None, frames: bool = True, console: Console | None = None
) -> Path:
    """Write the report of runs and give its path; without `frames` it holds no picture of a patient.

    One run's is `report.html` in its folder, that of several `report.html` in the folder above the first.

    >>> write_report([Path("runs/supervised"), Path("runs/pgvcl")])  # doctest: +SKIP
    PosixPath('runs/report.html')
    """
    console = console or Console(stderr=True)
    facts = read_runs(runs)
    folder = Path(runs[0])
    path = out or (folder if len(facts) == 1 else folder.parent) / "report.html"
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the report a file name, such as {path / 'report.html'}.")
    environment = Environment(
        loader=PackageLoader("suture.report", "page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"percent": percent, "seconds": _seconds, "gigabytes": lambda n: f"{n / 2**30:.2f} GiB"}
    write_text(path, environment.get_template("page.html").render(_Page(facts, frames, console).content()))
    return path


class _Page:
    """Everything the template shows, section by section."""

    def __init__(self, runs: list[RunFacts], frames: bool, console: Console) -> None:
        self.runs = runs
        self.first = runs[0]
        self.frames = frames
        self.console = console
        self.remarks: list[str] = []
        self.dataset = self._open(self.first)

    def content(self) -> dict[str, Any]:
        classes = [one["name"] for one in self.first.data["classes"]]
        pseudo = self._pseudo()
        viewers = {}
        if self.frames and self.dataset is not None:
            viewers = {"predictions": self._prediction_pictures(self.dataset)}
            if pseudo:
                viewers["pseudo"] = self._pseudo_pictures(self.dataset, pseudo)
        scored = sets(self.runs)
        self._remark()
        return {
            "title": f"{self.first.data['dataset']}: {' and '.join(run.name for run in self.runs)}",
            "written": date.today().isoformat(),
            "version": suture.__version__,
            "runs": self.runs,
            "styles": STYLES,
            "findings": self._findings(scored),
            "facts": [_facts(run) for run in self.runs],
            "remarks": self.remarks,
            "frames": self.frames,
            "classes": classes,
            "palettes": {
                "dataset": [one["color"] for one in self.first.data["classes"]],
                "safe": default_colors(classes),
            },
            "columns": self._columns(),
            "sets": [
                {
                    "key": which,
                    "title": SETS[which],
                    "overall": overall(self.runs, which),
                    "classes": per_class(self.runs, which),
                    "videos": per_video(self.runs, which),
                    "confusion": [_confusion(run, which) for run in self.runs],
                    "about": next(run.metrics[which] for run in self.runs if which in run.metrics),
                    "intervals": [run.metrics.get(which, {}).get("primary", {}).get("interval") for run in self.runs],
                }
                for which in scored
            ],
            "new_videos_scored": any(which != COMPLETION for which in scored),
            "completion_scored": COMPLETION in scored,
            "losses": self._losses(),
            "shots": self._shots(),
            "pseudo": [(run, pseudo[run.name]) for run in self.runs if run.name in pseudo],
            "pseudo_chart": _pseudo_chart(self.runs, pseudo),
            "confidence_chart": _confidence_chart(self.runs, pseudo),
            "viewers": viewers,
        }

    def _open(self, run: RunFacts) -> Dataset | None:
        """The run's dataset; None where it is not there any more. The page names no path, the terminal does."""
        try:
            return open_data(run.config).dataset
        except UserError as error:
            self.console.print(
                f"[yellow]The data of {escape(run.name)} is left out:[/yellow] {escape(str(error))}", highlight=False
            )
            self.remarks.append(
                f"The data of {run.name} could not be read when this report was written: what needs it is left out."
            )
            return None

    def _remark(self) -> None:
        """What a reader has to know before comparing."""
        for run in self.runs:
            if not run.finished:
                self.remarks.append(f"{run.name} is not finished: what it has not done yet is left out.")
            elif not run.metrics:
                self.remarks.append(f"{run.name} is not evaluated, or nothing it could be scored on has masks.")
            known = {video["case"] for video in run.videos("train").values()}
            if shared := sorted({video["case"] for video in run.videos("test").values()} & known):
                self.remarks.append(
                    f"{run.name} was trained and tested on videos of {', '.join(shared)}: "
                    "its scores say nothing about new patients."
                )
            if run.videos("test").keys() != self.first.videos("test").keys():
                self.remarks.append(f"{run.name} was tested on other videos than {self.first.name}.")
            if run.data["labelled"] != self.first.data["labelled"]:
                self.remarks.append(f"{run.name} learnt from other labelled frames than {self.first.name}.")

    def _findings(self, scored: Sequence[str]) -> list[dict[str, Any]]:
        """The primary score of every run on every set."""
        titles = {column.key: column.title for column in COLUMNS}
        found = []
        for which in scored:
            primary = next(run.metrics[which]["primary"]["score"] for run in self.runs if which in run.metrics)
            place = list(titles).index(primary)
            cells = [row[place] for row in overall(self.runs, which)]
            found.append({"title": SETS[which], "score": titles[primary], "cells": cells})
        return found

    def _columns(self) -> list[dict[str, str]]:
        scored = next(
            (run.metrics[which] for which in sets(self.runs) for run in self.runs if which in run.metrics), None
        )
        if scored is None:
            return []
        tolerance = scored["boundary_tolerance"]
        return [{"key": c.key, "title": c.title, "meaning": c.meaning.format(tolerance=tolerance)} for c in COLUMNS]

    def _losses(self) -> list[tuple[str, Any]]:
        """A chart per stage, with the curve of every run that has the stage."""
        names = dict.fromkeys(stage.name for run in self.runs for stage in run.stages if stage.curve)
        charts = []
        for name in names:
            series = [
                Series(run.name, number, [row["step"] for row in stage.curve], [row["loss"] for row in stage.curve])
                for number, run in enumerate(self.runs)
                for stage in run.stages
                if stage.name == name and stage.curve
            ]
            charts.append((name, line_chart(name, series, "step", "loss")))
        return charts

    def _shots(self) -> list[dict[str, Any]]:
        """The training videos as timelines; the first of them with the curve their cuts are from."""
        drawn = []
        left = _CURVE_FRAMES
        videos = self.first.videos("train")
        with bar("draw the shots", len(videos), self.console) as (progress, task):
            for name, facts in videos.items():
                progress.advance(task)
                starts = self.first.shots.get(name)
                if not starts:
                    continue
                curve, cuts = None, []
                if self.dataset is not None and len(self.dataset[name].usable) <= left:
                    video = self.dataset[name]
                    left -= len(video.usable)
                    found = find_shots(video)
                    curve = found.frames[1:], found.curve, found.threshold
                    if self.frames:
                        shown = [starts[1:][i] for i in _evenly(len(starts) - 1, _CUTS)]
                        cuts = [
                            [(index, data_uri(scene(video, index, _CUT_SIDE))) for index in (_before(video, cut), cut)]
                            for cut in shown
                        ]
                labelled = self.first.labelled(name)
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

    def _pseudo(self) -> dict[str, PseudoQuality]:
        """The quality of every run's pseudo labels, by the run's name."""
        found = {}
        for run in self.runs:
            if run.pseudo is None:
                continue
            dataset = self.dataset if run is self.first else self._open(run)
            if dataset is not None:
                labelling = Labelling({video: run.labelled(video) for video in run.data["videos"]})
                found[run.name] = pseudo_quality(run.pseudo, run.run.folder, dataset, labelling)
        return found

    def _prediction_pictures(self, dataset: Dataset) -> dict[str, Any] | None:
        """Frames of new videos: the worst, middling and best; without truth, some from everywhere."""
        runs = [run for run in self.runs if run.finished]
        frames = self._new_frames(dataset)
        if not runs or not frames:
            return None
        judge = Judge(dataset)
        has_truth = any(dataset[video].frames[index].mask for video, indices in frames.items() for index in indices)
        chosen_frames = sample(frames, _JUDGED if has_truth else 12)
        found = [predictions(run, dataset, chosen_frames, self.console) for run in runs]
        places = list(found[0])
        truths = {place: truth for place in places if (truth := judge.truth(place)) is not None}
        scores = {
            place: [frame_iou(judge.matrix(of_run[place], truth)) for of_run in found]
            for place, truth in truths.items()
        }
        chosen = pick(scores) if has_truth else [("", place) for place in places]
        if not chosen:
            return None
        panels = [Panel("truth", "truth", truths)] if has_truth else []
        for number, (run, masks) in enumerate(zip(runs, found, strict=True)):
            panels.append(
                Panel(run.name, "prediction", masks, {place: values[number] for place, values in scores.items()})
            )
        return {"judged": len(places), "has_truth": has_truth, **pictures(dataset, chosen, panels, {})}

    def _new_frames(self, dataset: Dataset) -> Frames:
        """Frames of videos that no run has learnt from: those with masks, of the test videos if there are any."""
        learnt = {name for run in self.runs for name in run.videos("train")}
        new = [video for video in dataset if video.id not in learnt]
        for split in ("test", "val"):
            masked = {v.id: v.with_mask for v in new if v.split == split and v.with_mask}
            if masked:
                return masked
        return {video.id: video.usable for video in new}

    def _pseudo_pictures(self, dataset: Dataset, pseudo: dict[str, PseudoQuality]) -> dict[str, Any] | None:
        """Unlabelled training frames: truth, pseudo labels, and what the finished runs say."""
        quality = next(iter(pseudo.values()))
        common = [place for place in quality.frames if all(place in other.frames for other in pseudo.values())]
        scores = {
            place: [iou for other in pseudo.values() if (iou := other.frames[place].iou) is not None]
            for place in common
        }
        judge = Judge(dataset)
        has_truth = any(scores.values())
        if has_truth:
            chosen = pick({place: values for place, values in scores.items() if values}, each=2)
        else:
            chosen = [("", common[i]) for i in _evenly(len(common), 6)]
        if not chosen:
            return None
        places = [place for _, place in chosen]
        truths = {place: truth for place in places if (truth := judge.truth(place)) is not None}
        panels = [Panel("truth", "truth", truths)] if has_truth else []
        for name, of_run in pseudo.items():
            masks = {place: native(of_run.frames[place].ids, dataset[place[0]]) for place in places}
            panels.append(self._judged(judge, f"pseudo label of {name}", masks, truths))
        frames: dict[str, list[int]] = {}
        for video, index in sorted(places):
            frames.setdefault(video, []).append(index)
        for run in self.runs:
            if run.finished:
                masks = predictions(run, dataset, frames, self.console)
                panels.append(self._judged(judge, f"{run.name} at the end", masks, truths))
        notes = {}
        for place in places:
            one = quality.frames[place]
            far = f"{one.distance} frame{'s' if one.distance != 1 else ''} from a labelled one" if one.distance else ""
            notes[place] = ", ".join(part for part in (far, f"mean confidence {percent(one.confidence)} %") if part)
        return {"judged": len(common), "has_truth": has_truth, **pictures(dataset, chosen, panels, notes)}

    @staticmethod
    def _judged(judge: Judge, title: str, masks: dict[Place, np.ndarray], truths: dict[Place, np.ndarray]) -> Panel:
        scores = {place: frame_iou(judge.matrix(masks[place], truth)) for place, truth in truths.items()}
        return Panel(title, "prediction", masks, scores)


def _facts(run: RunFacts) -> dict[str, str]:
    """A run in a few lines."""
    config, environment = run.config, run.environment
    train = run.videos("train")
    usable = sum(video["frames"] - len(video["excluded"]) for video in train.values())
    labelled = len(run.data["labelled"])
    weights = run.data["weights"]
    size = config.data.height_width
    return {
        "method": config.method["name"],
        "stages": " → ".join(stage.name for stage in run.stages),
        "seed": str(config.seed),
        "labelled frames": f"{labelled} of {usable} ({labelled / max(1, usable):.1%})",
        "training data": f"{len(train)} videos of {len({video['case'] for video in train.values()})} cases",
        "segmenter": f"{config.model.architecture}, {config.model.encoder}, {size[0]} × {size[1]} pixels",
        "started from": "random weights"
        if weights is None
        else weights.get("hub") or f"a file, {weights['sha256'][:12]}",
        "device": f"{environment['device']}, precision {environment['precision']}",
        "code": f"Suture {environment['suture']}, commit {(environment['commit'] or 'unknown')[:10]}"
        + (" with changes" if (environment["commit"] or "").endswith("+") else ""),
        "time": _seconds(sum(stage.done["seconds"] for stage in run.stages if stage.done)),
    }


def _confusion(run: RunFacts, which: str) -> dict[str, Any] | None:
    """The share of each true class's pixels that is predicted as each class; without classes that occur nowhere."""
    counts = run.metrics.get(which, {}).get("confusion")
    if counts is None:
        return None
    matrix = np.array(counts)[:-1]
    names = [*run.classes, "none"]
    rows = np.flatnonzero(matrix.sum(1))
    columns = np.flatnonzero(matrix.sum(0) + np.append(matrix.sum(1), 0))
    return {
        "columns": [names[j] for j in columns],
        "rows": [
            {
                "name": names[i],
                "pixels": int(matrix[i].sum()),
                "cells": [(float(matrix[i, j] / matrix[i].sum()), int(matrix[i, j]), bool(i == j)) for j in columns],
            }
            for i in rows
        ],
    }


def _pseudo_chart(runs: Sequence[RunFacts], pseudo: dict[str, PseudoQuality]) -> Any:
    return _distance_chart("pseudo labels", "IoU of a frame", runs, pseudo, lambda frame: frame.iou)


def _confidence_chart(runs: Sequence[RunFacts], pseudo: dict[str, PseudoQuality]) -> Any:
    return _distance_chart("pseudo labels", "confidence", runs, pseudo, lambda frame: frame.confidence)


def _distance_chart(
    title: str, label: str, runs: Sequence[RunFacts], pseudo: dict[str, PseudoQuality], value: Any
) -> Any:
    series = []
    for number, run in enumerate(runs):
        if run.name not in pseudo:
            continue
        measured = [(frame.distance, value(frame)) for frame in pseudo[run.name].frames.values() if frame.distance]
        known = [(distance, found) for distance, found in measured if found is not None and np.isfinite(found)]
        if known:
            distances, values = zip(*known, strict=True)
            means = over_distance(distances, values)
            series.append(
                Series(run.name, number, [m[0] for m in means], [m[1] for m in means], (list(distances), list(values)))
            )
    return line_chart(title, series, "frames to the nearest labelled one", label, (0, 1)) if series else None


def _before(video: Any, cut: int) -> int:
    """The usable frame before a cut."""
    return max(index for index in video.usable if index < cut)


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the places 0 … count − 1, evenly."""
    shown = min(count, most)
    return [i * count // shown for i in range(shown)]


def _seconds(seconds: float) -> str:
    """A duration for people.

    >>> _seconds(7.25), _seconds(125), _seconds(7320)
    ('7.2 s', '2 min 5 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
