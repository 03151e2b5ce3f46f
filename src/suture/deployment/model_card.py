"""The model card: origin, scores and limits of a model. Its text is the template `model_card.md.j2`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from suture.core.schemas import taking_part, videos_since
from suture.core.text import number
from suture.evaluation.protocols import COMPLETION
from suture.evaluation.titles import SETS, TITLES
from suture.training.run_folder import Run
from suture.web.table import escape_markdown

WEAK_IOU = 0.5
"""IoU below which a class is listed under the limits."""


def card_path(model: Path) -> Path:
    """Path of the card beside an exported model; two models in one folder have different cards.

    >>> card_path(Path("model.onnx")).name, card_path(Path("hernia.onnx")).name
    ('MODEL_CARD.md', 'hernia.card.md')
    """
    return model.with_name("MODEL_CARD.md" if model.stem == "model" else f"{model.stem}.card.md")


def render_card(run: Run) -> str:
    """Render the model card of a finished run in Markdown; it names videos by their ids, and no path.

    >>> print(render_card(Run(Path("runs/pgvcl"))))  # doctest: +SKIP
    """
    config, model, data = run.config_record, run.model_record, run.data
    metrics = {which: run.metrics[which] for which in SETS if which in run.metrics}
    # Consistency is only meaningful next to that of the true masks, which the report shows.
    titles = {key: title for key, title in TITLES.items() if key != "consistency"}
    height, width = model["size"]
    return _template().render(
        run=run,
        config=config,
        model=model,
        segmenter=model["segmenter"],
        height=height,
        width=width,
        splits=[row for split in ("train", "val", "test") if (row := _split_row(run, split))[2]],
        labelling=_labelling(config["data"]["labelling"]),
        excluded=sum(len(video["excluded"]) for video in data["videos"].values()),
        stages=_stage_rows(run),
        weights=data["weights"] and {"hub": None, "name": None, "origin": None, "licence": None} | data["weights"],
        sets=[
            {"title": SETS[which].title, "scores": one, "cells": [_percent(one["overall"][key]) for key in titles]}
            for which, one in metrics.items()
        ],
        titles=[{"title": title} for title in titles.values()],
        has_completion=COMPLETION in metrics,
        completion_meaning=SETS[COMPLETION].meaning,
        remarks=_remarks(run, metrics, titles),
        set_columns=[column for which in metrics for column in (SETS[which].title, "frames")],
        class_rows=[_class_row(one["name"], metrics) for one in model["classes"]],
        cases=number(len(_cases(run, "train")), "case"),
        test=_test_limits(run) if "test" in metrics else None,
        weak_iou=round(100 * WEAK_IOU),
        packages=", ".join(f"{name} {version}" for name, version in run.environment["packages"].items() if version),
    )


@cache
def _template() -> Template:
    loader = PackageLoader("suture.deployment", "")
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape_markdown(str(value))),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("model_card.md.j2")


def _cases(run: Run, split: str) -> list[str]:
    return sorted({video["case"] for video in run.videos(split).values()})


def _split_row(run: Run, split: str) -> tuple[str, str, int, int]:
    videos = run.videos(split)
    return split, ", ".join(_cases(run, split)), len(videos), sum(map(taking_part, videos.values()))


def _stage_rows(run: Run) -> list[tuple[Any, ...]]:
    rows = []
    for name, stage in run.config_record["method"].items():
        if isinstance(stage, Mapping) and "optimizer" in stage:
            length = f"{stage['steps']} steps" if stage["steps"] else f"{stage['epochs']} epochs"
            rate = stage["optimizer"]["lr"] or run.stage_records.get(name, {}).get("lr")
            rows.append((name, length, stage["batch"], stage["optimizer"]["kind"], f"{rate:g}" if rate else "–"))
    return rows


def _class_row(name: str, metrics: Mapping[str, Any]) -> list[Any]:
    scores = [one["classes"].get(name, {}) for one in metrics.values()]
    return [name, *(cell for one in scores for cell in (_percent(one.get("iou")), one.get("frames", "–")))]


def _remarks(run: Run, metrics: Mapping[str, Any], titles: Mapping[str, str]) -> list[str]:
    """Remarks on the scores: intervals, chosen weights, later videos, and notes of the protocols."""
    remarks = []
    for which, one in metrics.items():
        if interval := one["primary"]["interval"]:
            low, high = map(_percent, interval)
            score = titles[one["primary"]["score"]]
            remarks.append(f"{SETS[which].title}: 95 % interval of the {score} over cases {low}–{high}.")
    stages = [stage for stage in run.config_record["method"].values() if isinstance(stage, Mapping)]
    if "val" in metrics and any(stage.get("best_every") for stage in stages):
        remarks.append("The weights were chosen by the validation videos: scores on these flatter it.")
    if since := videos_since(run.data, metrics):
        remarks.append(f"Of the videos scored as new, {', '.join(since)} came into the splits after the training.")
    return remarks + list(dict.fromkeys(f"{note}." for one in metrics.values() for note in one["notes"]))


def _test_limits(run: Run) -> dict[str, Any]:
    """Limits that follow from the scores on test videos."""
    scores = run.metrics["test"]
    classes = scores["classes"]
    # A class that no frame shows has an IoU of 0 if it was predicted; that is no measure of it.
    shown = {name: one["iou"] for name, one in classes.items() if one["frames"]}
    unseen = [name for name, one in classes.items() if one["iou"] is None]
    count = len(scores["cases"])
    return {
        "known_cases": sorted(scores["cases"].keys() & {*_cases(run, "train")}),
        "interval": scores["primary"]["interval"],
        "cases": f"{number(count, 'test case')} {'is' if count == 1 else 'are'}",
        "weak": [f"{name} ({_percent(iou)})" for name, iou in shown.items() if iou < WEAK_IOU],
        "unseen": unseen,
        "only_predicted": [name for name in classes if name not in shown and name not in unseen],
        "unscored": [one["name"] for one in run.model_record["classes"] if one["name"] not in classes],
    }


def _labelling(settings: Mapping[str, Any]) -> str:
    if settings["list"]:
        return "by a list of frames"
    videos = f" in {settings['videos']} training videos" if settings["videos"] else ""
    if settings["every"]:
        return f"one in {settings['every']}{videos}"
    if settings["ratio"]:
        return f"spread over each video at a ratio of {settings['ratio']:g}{videos}"
    return f"one frame each{videos}" if videos else "all that have a mask"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"
