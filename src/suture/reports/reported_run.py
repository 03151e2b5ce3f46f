"""ReportedRun: a run as a report shows it."""

import os
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from suture.core.errors import UserError
from suture.methods.pseudo_labels import PseudoLabels
from suture.models.model_files import is_weights_file
from suture.training.config import differences
from suture.training.run_folder import Run, RunStage
from suture.training.session import AnyStage


class ReportedRun(Run):
    """A run with its title on the page, the stages of its method and its settings without private parts."""

    def __init__(self, folder: Path, title: str) -> None:
        super().__init__(folder)
        self.title = title

    @cached_property
    def method_stages(self) -> list[tuple[AnyStage, RunStage]]:
        """Stages of the method, begun or not, with their folders."""
        stages = self.config.build_method().stages()
        return [(stage, self.stage(place, stage.name)) for place, stage in enumerate(stages, 1)]

    @property
    def pseudo_stage(self) -> PseudoLabels | None:
        """Last finished stage whose pseudo labels are still in the folder."""
        for stage, folder in reversed(self.method_stages):
            if isinstance(stage, PseudoLabels) and folder.is_done and stage.folder(self.folder).exists():
                return stage
        return None

    @cached_property
    def labelled(self) -> dict[str, list[int]]:
        """Indices of the labelled frames of each training video."""
        return {video: [] for video in self.videos("train")} | self.labelled_frames

    def settings(self) -> dict[str, Any]:
        """Return the config without paths and logger arguments, which can hold names or keys."""
        settings = self.config.model_dump(mode="json")
        data, model, compute = settings["data"], settings["model"], settings["compute"]
        del data["root"], data["cache"]
        data["options"] = {key: value for key, value in data["options"].items() if os.sep not in str(value)}
        if data["labelling"]["list"]:
            data["labelling"]["list"] = "a list of frames"
        if model["weights"] and is_weights_file(model["weights"]):
            model["weights"] = "a file"
        if compute["logger"]:
            del compute["logger"]["arguments"]
        return settings

    def settings_text(self) -> str:
        return yaml.safe_dump(self.settings(), sort_keys=False, allow_unicode=True)

    def differences_to(self, other: "ReportedRun") -> list[str]:
        """Return lines such as `train.steps: 100 → 200`, and names of stages that only one of the runs has."""
        ours, theirs = self.settings(), other.settings()
        lines = []
        for key in sorted(ours["method"].keys() ^ theirs["method"].keys()):
            owner, method = (self, ours["method"]) if key in ours["method"] else (other, theirs["method"])
            del method[key]
            lines.append(f"method.{key}: only in {owner.title}")
        return differences(theirs, ours) + lines


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Read runs to show side by side.

    Raises:
        UserError: A folder holds no run that has trained, or the runs are of different data.
    """
    if not folders:
        raise UserError("A report needs at least one run folder.")
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{folder} is given twice: name each run once.")
    depth = next(depth for depth in count(1) if len({path.parts[-depth:] for path in paths}) == len(paths))
    runs = [ReportedRun(folder, "/".join(path.parts[-depth:])) for folder, path in zip(folders, paths, strict=True)]
    for run in runs:
        _ = run.config, run.data, run.starts, run.metrics, run.stage_records  # raise for missing or damaged files
        if not run.is_begun and not run.is_scored:
            raise UserError(f"{run.folder} has no trained step yet: continue it with `suture train`.")
        _require_same_data(runs[0], run)
    parts = [run.title.split("__") for run in runs]  # a comparison's folders: DATASET__LABELLING__METHOD__seed-0
    common = set(parts[0]).intersection(*parts[1:])
    for run, own in zip(runs, parts, strict=True):
        run.title = " · ".join(part for part in own if part not in common) or run.title
    return runs


def _require_same_data(first: ReportedRun, other: ReportedRun) -> None:
    shared = first.data["videos"].keys() & other.data["videos"].keys()
    lengths = ({name: run.data["videos"][name]["frames"] for name in shared} for run in (first, other))
    pairs = {key: (first.data[key], other.data[key]) for key in ("dataset", "protocol", "classes")}
    for key, (ours, theirs) in (pairs | {"the lengths of videos": tuple(lengths)}).items():
        if ours != theirs:
            raise UserError(f"{first.folder} and {other.folder} differ in {key}: report them one by one.")
