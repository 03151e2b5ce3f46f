"""What the folders of some runs say, without a look at any video."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from suture.core.errors import UserError
from suture.core.schemas import (
    DataRecord,
    EnvironmentRecord,
    ShotsRecord,
    StageRecord,
    labelled_frames,
    read_record,
    taking_part,
)
from suture.core.text import number
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.semi import SemiSupervised
from suture.models.model_files import is_weights_file
from suture.training.budget import effort
from suture.training.config import Config, differences
from suture.training.run_folder import Run, read_curve
from suture.training.stages import AnyStage

_LONGEST = 20
"""Characters of a name that stand over a panel or a column without running into its neighbour."""


@dataclass(frozen=True)
class StageFacts:
    """One stage of a run."""

    stage: AnyStage
    """What the method runs."""
    folder: Path
    done: dict[str, Any] | None
    """How it ended; None where it has not yet."""
    curve: list[dict[str, float]]

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def weights(self) -> Path | None:
        """The weights it ended with, where they are still there."""
        file = self.folder / "weights.safetensors"
        return file if self.done and file.exists() else None


@dataclass(frozen=True)
class RunFacts:
    """One run, as its folder tells it."""

    name: str
    """Its folder's, or what sets it apart from the runs beside it."""
    run: Run
    config: Config
    data: dict[str, Any]
    environment: dict[str, Any]
    """Of the latest start."""
    starts: int
    stages: list[StageFacts]
    shots: dict[str, list[int]]
    """First frame of each shot of the training videos."""
    metrics: dict[str, Any]
    """Empty where the run is not evaluated yet."""

    @property
    def finished(self) -> bool:
        return (self.run.folder / "model.json").exists()

    @property
    def classes(self) -> list[str]:
        return [one["name"] for one in self.data["classes"]]

    @property
    def pseudo(self) -> PseudoLabels | None:
        """The stage of its latest finished pseudo labels, where they are still there."""
        made = (stage.stage for stage in reversed(self.stages) if stage.done)
        found = (stage for stage in made if isinstance(stage, PseudoLabels))
        return next((stage for stage in found if stage.folder(self.run.folder).exists()), None)

    @property
    def taught(self) -> SemiSupervised | None:
        """Its stage that learns from a teacher's predictions as they come and keeps none of them."""
        return next((stage.stage for stage in self.stages if isinstance(stage.stage, SemiSupervised)), None)

    @property
    def effort(self) -> dict[str, str]:
        """What it was given to learn with; of a finished run."""
        stages = {stage.name: stage.done for stage in self.stages if stage.done}
        return effort(self.config.model_dump(mode="json"), self.data, stages)

    def labelled(self, video: str) -> list[int]:
        """Indices of a video's labelled frames."""
        return self._labelled.get(video, [])

    @cached_property
    def _labelled(self) -> dict[str, list[int]]:
        """Of all videos at once: there may be thousands."""
        return {video: sorted(indices) for video, indices in labelled_frames(self.data).items()}

    @property
    def all_labelled(self) -> bool:
        """Whether none of its training frames was without a label."""
        return len(self.data["labelled"]) == sum(map(taking_part, self.videos("train").values()))

    def videos(self, split: str) -> dict[str, dict[str, Any]]:
        """What is known of each video of a split."""
        return {name: video for name, video in self.data["videos"].items() if video["split"] == split}

    def settings(self) -> dict[str, Any]:
        """The config without what names the machine it ran on: paths can carry a patient's name, loggers a key."""
        said = self.config.model_dump(mode="json")
        data, model, compute = said["data"], said["model"], said["compute"]
        del data["root"], data["cache"]
        data["options"] = {key: value for key, value in data["options"].items() if os.sep not in str(value)}
        if data["labelling"]["list"]:
            data["labelling"]["list"] = "a list of frames"
        if model["weights"] and is_weights_file(model["weights"]):
            model["weights"] = "a file"
        if compute["logger"]:
            del compute["logger"]["arguments"]
        return said

    def settings_text(self) -> str:
        return yaml.safe_dump(self.settings(), sort_keys=False, allow_unicode=True)

    def differences_to(self, other: "RunFacts") -> list[str]:
        """Lines `key: theirs → ours` for settings that differ; those of a method that only one has are named."""
        ours, theirs = self.settings(), other.settings()
        lines = [
            *(f"{key}: only in {self.name}" for key in _taken_out(ours["method"], theirs["method"], "method.")),
            *(f"{key}: only in {other.name}" for key in _taken_out(theirs["method"], ours["method"], "method.")),
        ]
        return differences(theirs, ours) + lines


def read_runs(folders: Sequence[Path]) -> list[RunFacts]:
    """The facts of runs that can stand side by side: on one dataset, with the same classes."""
    if not folders:
        raise UserError("A report needs at least one run folder.")
    runs = [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]
    runs = [replace(run, name=name) for run, name in zip(runs, _told_apart(runs), strict=True)]
    first = runs[0]
    for other in runs[1:]:
        for what in ("dataset", "protocol", "classes"):
            if first.data[what] != other.data[what]:
                found = f"{first.data[what]} and {other.data[what]}" if what != "classes" else "their tables differ"
                raise UserError(
                    f"The runs {first.name} and {other.name} differ in {what} ({found}): "
                    "their scores cannot be compared, report them one by one."
                )
        for name in first.data["videos"].keys() & other.data["videos"].keys():
            lengths = [run.data["videos"][name]["frames"] for run in (first, other)]
            if lengths[0] != lengths[1]:
                raise UserError(
                    f"The runs {first.name} and {other.name} have different videos of the name {name} ({lengths[0]:,} "
                    f"and {lengths[1]:,} frames): their scores cannot be compared, report them one by one."
                )
    return runs


def _taken_out(said: dict[str, Any], beside: dict[str, Any], at: str = "") -> list[str]:
    """Take the keys out of settings that those beside them lack, and give them.

    >>> said = {"train": {"steps": 3, "cutmix": 0.5}, "ema": None}
    >>> _taken_out(said, {"train": {"steps": 4}}), said
    (['train.cutmix', 'ema'], {'train': {'steps': 3}})
    """
    keys = []
    for key in list(said):
        if key not in beside:
            del said[key]
            keys.append(f"{at}{key}")
        elif isinstance(said[key], dict) and isinstance(beside[key], dict):
            keys += _taken_out(said[key], beside[key], f"{at}{key}.")
    return keys


def _read(folder: Path, name: str) -> RunFacts:
    run = Run(folder)
    config = run.config
    for file in ("data.json", "environment.json"):
        if not (folder / file).exists():
            raise UserError(f"{folder} has no {file}: its training has not begun, start it with `suture train`.")
    starts = read_record(folder / "environment.json", EnvironmentRecord)["starts"]
    shots = folder / "shots.json"
    stages = []
    for place, stage in enumerate(config.build_method().stages(), 1):
        of_stage = run.stage(place, stage.name).folder
        done = of_stage / "done.json"
        stages.append(
            StageFacts(
                stage,
                of_stage,
                read_record(done, StageRecord) if done.exists() else None,
                read_curve(of_stage / "metrics.csv"),
            )
        )
    metrics = run.metrics
    if not any(stage.done or stage.curve for stage in stages) and not metrics:  # scored, it was trained
        raise UserError(f"{folder} has not a single step of training yet: go on with `suture train`, then report.")
    data = read_record(folder / "data.json", DataRecord)
    for which, scores in metrics.items():
        rows = scores.get("confusion")
        if rows is not None and len(rows) != len(data["classes"]) + 1:
            raise UserError(
                f"{folder}: the scores of {which} in metrics.json are of {len(rows) - 1} classes, but data.json has "
                f"{len(data['classes'])}: put back the files that belong together."
            )
    return RunFacts(
        name=name,
        run=run,
        config=config,
        data=data,
        environment=starts[-1],
        starts=len(starts),
        stages=stages,
        shots=read_record(shots, ShotsRecord) if shots.exists() else {},
        metrics=metrics,
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' names, with the names of folders above where two are the same."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(some[-count:]) for some in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(folder for folder, some in zip(folders, parts, strict=True) if parts.count(some) > 1)
    raise UserError(f"{twice} is given twice: name each run once.")


def _told_apart(runs: Sequence[RunFacts]) -> list[str]:
    """What differs between the runs, where the folders' names are too long to stand side by side and it is enough.

    A comparison's folders say it themselves, `DATASET__LABELLING__METHOD__seed-0`, with the comparison's own names of
    methods; of others the configs tell.
    """
    names = [run.name for run in runs]
    if len(runs) == 1 or max(map(len, names)) <= _LONGEST:
        return names
    said = [name.split("__") for name in names]
    if min(map(len, said)) < 4:
        said = [_told(run) for run in runs]
    common = set(said[0]).intersection(*said[1:])
    short = [" · ".join(part for part in parts if part not in common) for parts in said]
    return short if all(short) and len(set(short)) == len(short) else names


def _told(run: RunFacts) -> list[str]:
    """What runs side by side may differ in, as a reader would say it."""
    height, width = run.config.data.height_width
    labels = number(len(run.data["labelled"]), "label")
    return [run.config.method["name"], labels, run.config.model.encoder, f"{height}×{width}", f"seed {run.config.seed}"]
