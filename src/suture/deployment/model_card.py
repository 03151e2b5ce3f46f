"""The model card: what a model was made of, how good it is, and what it must not be taken for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suture.core.errors import UserError
from suture.core.schemas import (
    ConfigRecord,
    DataRecord,
    EnvironmentRecord,
    MetricsRecord,
    ModelRecord,
    StageRecord,
    read_record,
    taking_part,
    videos_since,
)
from suture.core.text import number
from suture.evaluation.protocols import COMPLETION
from suture.evaluation.titles import SETS, TITLES
from suture.models.model_files import DESCRIPTION

WEAK = 0.5
"""A class below this IoU is named among the limits."""


def card_of(model: Path) -> Path:
    """Where the card of an exported model goes: beside it, under a name that two models in one folder do not share.

    >>> card_of(Path("model.onnx")).name, card_of(Path("hernia.onnx")).name
    ('MODEL_CARD.md', 'hernia.card.md')
    """
    return model.with_name("MODEL_CARD.md" if model.stem == "model" else f"{model.stem}.card.md")


@dataclass(frozen=True)
class Papers:
    """What the folder of a finished run says about it, as plain data."""

    folder: Path
    model: dict[str, Any]
    config: dict[str, Any]
    data: dict[str, Any]
    metrics: dict[str, Any]
    """Empty where the run was not evaluated."""
    environment: dict[str, Any]
    """Of the latest start."""
    rates: dict[str, float]
    """The learning rates that stages had, as far as they say so."""

    @staticmethod
    def read(folder: Path) -> "Papers":
        """The papers of a run folder.

        >>> print(Papers.read(Path("runs/pgvcl")).card())  # doctest: +SKIP
        """
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder, expected that of a finished run.")
        for name in ("config.yaml", "data.json", "environment.json", DESCRIPTION):
            if not (folder / name).exists():
                raise UserError(f"{folder} has no {name}, expected the folder of a finished run: train it to the end.")
        metrics = folder / "metrics.json"
        return Papers(
            folder,
            read_record(folder / DESCRIPTION, ModelRecord),
            read_record(folder / "config.yaml", ConfigRecord),
            read_record(folder / "data.json", DataRecord),
            read_record(metrics, MetricsRecord) if metrics.exists() else {},
            read_record(folder / "environment.json", EnvironmentRecord)["starts"][-1],
            {
                path.parent.name.partition("-")[2]: done["lr"]
                for path in sorted(folder.glob("stages/*/done.json"))
                if "lr" in (done := read_record(path, StageRecord))
            },
        )

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def frame(self) -> tuple[int, int] | None:
        """Height and width of the scene in the run's videos, where it is the same in all."""
        sizes = {tuple(video["view"]["rect"][2:]) for video in self.data["videos"].values() if video["view"]}
        return next(((height, width) for width, height in sizes), None) if len(sizes) == 1 else None

    def origin(self) -> dict[str, Any]:
        """Which run this is, in a few words."""
        config, environment = self.config, self.environment
        return {
            "name": self.name,
            "dataset": self.data["dataset"],
            "method": config["method"]["name"],
            "seed": config["seed"],
            "suture": environment["suture"],
            "commit": environment["commit"],
        }

    def card(self) -> str:
        """The model card, in Markdown; videos are named by their ids in the dataset, and no path is."""
        parts = (_summary, _classes, _data, _training, _scores, _limits, _environment)
        return "\n".join(line for part in parts for line in part(self))


def _summary(papers: Papers) -> Iterator[str]:
    segmenter, origin = papers.model["segmenter"], papers.origin()
    height, width = papers.model["size"]
    stride = f", output stride {segmenter['output_stride']}" if segmenter["output_stride"] else ""
    yield f"# Model card: {papers.name}"
    yield ""
    yield (
        f"Segments frames of surgical video into {segmenter['classes']} classes. {segmenter['architecture']} with "
        f"{segmenter['encoder']}{stride}, trained by {origin['method']} (seed {origin['seed']}) on "
        f"{origin['dataset']} at {width}×{height} pixels, with Suture {origin['suture']}."
    )
    yield ""
    yield (
        "**This is no medical device.** It was neither tested nor approved for diagnosis, treatment or guidance of an "
        "operation. It is for research, and for engineers to build and to test with."
    )
    yield ""


def _classes(papers: Papers) -> Iterator[str]:
    yield "## Classes"
    yield ""
    rows = [
        (number, one["name"], "#" + "".join(f"{channel:02x}" for channel in one["color"]))
        for number, one in enumerate(papers.model["classes"])
    ]
    yield from _table(("id", "name", "colour"), rows)
    yield ""


def _data(papers: Papers) -> Iterator[str]:
    data, config = papers.data, papers.config["data"]
    rows = []
    for split in ("train", "val", "test"):
        videos = {name: video for name, video in data["videos"].items() if video["split"] == split}
        cases = sorted({video["case"] for video in videos.values()})
        frames = sum(taking_part(video) for video in videos.values())
        rows.append((split, ", ".join(cases), len(videos), frames))
    usable, count = rows[0][3], len(data["labelled"])
    yield "## Data"
    yield ""
    yield from _table(("split", "cases", "videos", "frames"), [row for row in rows if row[2]])
    yield ""
    how = _labelling(config["labelling"])
    yield f"- Labels it learned from: {count} of the {usable} training frames ({count / max(usable, 1):.1%}), {how}."
    if config["validation"]:
        yield f"- Held out of the training videos for validation: {', '.join(config['validation'])}."
    excluded = sum(len(video["excluded"]) for video in data["videos"].values())
    if excluded:
        yield f"- Frames excluded as showing no scene (out of body, no signal), and counted nowhere: {excluded}."
    yield "- Each frame's view, the part that shows the scene, was cut out and resized to the training size."
    yield "- The run's `data.json` has the SHA-256 of every video and of every mask it learned from."
    yield ""


def _training(papers: Papers) -> Iterator[str]:
    method = papers.config["method"]
    rows = []
    for name, stage in method.items():
        if isinstance(stage, Mapping) and "optimizer" in stage:
            length = f"{stage['steps']} steps" if stage["steps"] else f"{stage['epochs']} epochs"
            optimizer = stage["optimizer"]
            rate = optimizer["lr"] or papers.rates.get(name)
            rows.append((name, length, stage["batch"], optimizer["kind"], f"{rate:g}" if rate else "–"))
    yield "## Training"
    yield ""
    yield f"Method: {method['name']}, its stages in this order; the run's `config.yaml` has every setting."
    yield ""
    yield from _table(("stage", "length", "batch", "optimiser", "learning rate"), rows)
    yield ""
    yield f"Starting weights of the encoder: {_weights(papers.data['weights'])}."
    yield ""


def _scores(papers: Papers) -> Iterator[str]:
    metrics = {which: papers.metrics[which] for which in SETS if which in papers.metrics}
    yield "## Scores"
    yield ""
    if not metrics:
        yield "None: the run was not evaluated."
        yield ""
        return
    protocol = next(one["protocol"] for one in metrics.values())
    said = f"In percent, at the videos' own resolution, by the protocol *{protocol}*."
    if COMPLETION in metrics:
        said += f" {COMPLETION.title()} is on {SETS[COMPLETION].meaning}, and says nothing about new ones."
    yield said
    yield ""
    # Consistency says something beside that of the true masks only: that is for the report.
    titles = {key: title for key, title in TITLES.items() if key != "consistency"}
    yield from _table(
        ("scored on", "cases", "frames", *titles.values()),
        [
            (
                SETS[which].title,
                len(one["cases"]),
                one["overall"]["frames"],
                *(_percent(one["overall"][s]) for s in titles),
            )
            for which, one in metrics.items()
        ],
    )
    yield ""
    remarks = []
    for which, one in metrics.items():
        if interval := one["primary"]["interval"]:
            low, high = map(_percent, interval)
            score = titles[one["primary"]["score"]]
            remarks.append(f"{SETS[which].title}: 95 % interval of the {score} over cases {low}–{high}.")
    stages = [stage for stage in papers.config["method"].values() if isinstance(stage, Mapping)]
    if "val" in metrics and any(stage.get("best_every") for stage in stages):
        remarks.append("The weights were chosen by the validation videos: scores on these flatter it.")
    if since := videos_since(papers.data, metrics):
        remarks.append(f"Of the videos scored as new, {', '.join(since)} came into the splits after the training.")
    remarks += dict.fromkeys(f"{note}." for one in metrics.values() for note in one["notes"])
    if remarks:
        yield from (f"- {remark}" for remark in remarks)
        yield ""
    yield "IoU of each class, and in how many frames it occurs:"
    yield ""
    names = [one["name"] for one in papers.model["classes"]]
    heads = [head for which in metrics for head in (SETS[which].title, "frames")]
    rows = []
    for name in names:
        found = [one["classes"].get(name, {}) for one in metrics.values()]
        rows.append((name, *(cell for one in found for cell in (_percent(one.get("iou")), one.get("frames", "–")))))
    yield from _table(("class", *heads), rows)
    yield ""


def _limits(papers: Papers) -> Iterator[str]:
    videos = [video for video in papers.data["videos"].values() if video["split"] == "train"]
    cases = len({video["case"] for video in videos})
    yield "## Limits"
    yield ""
    yield (
        f"- It has seen {number(cases, 'case')} of one dataset. How it does with other operations, "
        "hospitals, cameras and instruments is not known: score it on your own labelled frames first."
    )
    test = papers.metrics.get("test")
    if test is None:
        yield "- It was not scored on test videos: how it does on new ones is not known."
    else:
        # A class that no frame shows has an IoU of 0 where it was predicted, which says nothing of how it is found.
        known = {name: one["iou"] for name, one in test["classes"].items() if one["frames"]}
        unseen = [name for name, one in test["classes"].items() if one["iou"] is None]
        predicted = [name for name in test["classes"] if name not in known and name not in unseen]
        unscored = [one["name"] for one in papers.model["classes"] if one["name"] not in test["classes"]]
        weak = [f"{name} ({_percent(iou)})" for name, iou in known.items() if iou < WEAK]
        if known_cases := sorted(test["cases"].keys() & {video["case"] for video in videos}):
            said = ", ".join(known_cases)
            yield f"- Tested on cases that it has learnt from ({said}): the scores say nothing about new patients."
        if test["primary"]["interval"] is None:
            count = len(test["cases"])
            few = f"{number(count, 'test case')} {'is' if count == 1 else 'are'}"
            yield f"- {few} too few to say how far its scores would differ on others."
        if weak:
            yield f"- Poorly found in test videos (IoU below {WEAK:.0%}): {', '.join(weak)}."
        if unseen:
            yield f"- Could not be judged, as no test video shows it: {', '.join(unseen)}."
        if predicted:
            yield (
                f"- Predicted in test videos, though none shows it: {', '.join(predicted)}. Each counts as 0 in the "
                "mIoU; how well it would be found is not known."
            )
        if unscored:
            yield f"- Not scored in test videos: {', '.join(unscored)}."
    yield "- It knows only the classes above, and gives every pixel one of them, also where it shows something else."
    yield "- Its probabilities are not calibrated, and it does not know when a frame is unlike those it was trained on."
    yield ""


def _environment(papers: Papers) -> Iterator[str]:
    environment = papers.environment
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items() if version)
    yield "## Made with"
    yield ""
    yield (
        f"Suture {environment['suture']}, commit {environment['commit'] or 'unknown'}, Python {environment['python']}, "
        f"on {environment['device']} in precision {environment['precision']}; {packages}."
    )
    yield ""


def _labelling(settings: Mapping[str, Any]) -> str:
    if settings["every"]:
        return f"one in {settings['every']}"
    if settings["ratio"]:
        return f"spread over each video at a ratio of {settings['ratio']:g}"
    return "by a list of frames" if settings["list"] else "all that have a mask"


def _weights(weights: Mapping[str, Any] | None) -> str:
    if weights is None:
        return "random"
    name = f"{weights['hub']}, from the hub" if "hub" in weights else weights["name"]
    origin = weights.get("origin") or "not stated"
    licence = weights.get("licence") or "not stated"
    return f"{name}; origin: {origin}; licence: {licence}; SHA-256 `{weights['sha256']}`"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A Markdown table; what comes from the user's data cannot break out of its cell."""
    yield _row(heads)
    yield _row(["---"] * len(heads))
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"
