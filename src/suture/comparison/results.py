"""Results of a comparison: one table with a row for each run, split and scope."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
from pyarrow import csv

from suture.comparison.plan import FAILED, PLAN, RunKey, deciding_settings, labelling_name
from suture.core.errors import UserError
from suture.core.io import parse_json, require_regular_file, write_bytes
from suture.core.schemas import FailuresRecord, PlanRecord, read_record
from suture.evaluation.protocols import COMPLETION
from suture.training import effort
from suture.training.run_folder import Run

GIB = 2**30
MISSING, UNSCORED = "missing", "nothing scored"
"""Values of `problem`; any other value is the error message of a failed run."""
SCORES = (
    *("miou", "miou_frames", "iou", "dice", "pa", "pac", "accuracy", "nsd"),
    *("consistency", "consistency_truth", "false_presence"),
)
FACTS = (
    *("split", "supervised_steps", "batch", "architecture", "encoder", "output_stride", "size", "store_size"),
    *("starting_weights", "classes", "protocol", "background_in_the_means", "flip_at_evaluation"),
    *("scales_at_evaluation", "precision", "precision_at_evaluation", "validation_on", "test_on"),
)
"""Columns in which two runs must agree for their scores to be comparable."""
LABELLING_FACTS = ("labels", "completion_on")
"""Columns in which two runs with the same labelling must agree as well."""
CONDITIONS = ("device", "runs_at_a_time", "compile", "workers", "threads", "commit", "versions")
"""Columns in which two runs must agree for their times to be comparable."""
_ROW_COLUMNS = {
    **dict.fromkeys(("dataset", "labelling", "method", "point"), pa.string()),
    "seed": pa.int64(),
    **dict.fromkeys(("set", "scope", "name"), pa.string()),
    "frames": pa.int64(),
    **dict.fromkeys((*SCORES, "low", "high"), pa.float64()),
}
_RUN_COLUMNS = {
    **dict.fromkeys(("role", "problem", "primary", "dataset_name", "base_method", "notes"), pa.string()),
    **dict.fromkeys(("labelled_frames", "training_frames"), pa.int64()),
    **dict.fromkeys(("per_sequence", "labels_alone", "chosen_by_validation"), pa.bool_()),
    **dict.fromkeys(("minutes", "memory_gib", "images_per_second"), pa.float64()),
    "stage_minutes": pa.string(),
    **dict.fromkeys((*FACTS, *LABELLING_FACTS, *CONDITIONS, "config", "settings"), pa.string()),
}
SCHEMA = pa.schema(list((_ROW_COLUMNS | _RUN_COLUMNS).items()))
"""Columns of the CSV. Those of a run stand in its rows of scope `all`.

`settings` has all settings of the first run of a base method, and for others the differences to it.
"""


@dataclass(frozen=True)
class RunResult:
    """Scores and facts of one scored run."""

    key: RunKey
    facts: dict[str, Any]
    scores: dict[tuple[str, str, str], dict[str, Any]]
    """Keys are set, scope (all, case, video, class) and name."""
    settings: dict[str, Any]
    """Settings that decide the outcome, by dotted key."""

    def score(self, which: str, scope: str, name: str, column: str) -> float | None:
        return self.scores.get((which, scope, name), {}).get(column)

    def names(self, which: str, scope: str) -> list[str]:
        """Cases, videos or classes that have scores in a set."""
        return [name for of, kind, name in self.scores if (of, kind) == (which, scope)]

    @property
    def labelled_share(self) -> float:
        """Labelled frames among all usable training frames."""
        return float(self.facts["labelled_frames"] / self.facts["training_frames"])

    def rows(self) -> Iterator[dict[str, Any]]:
        for (which, scope, name), scores in self.scores.items():
            facts = self.facts if scope == "all" else {}
            yield self.key._asdict() | {"set": which, "scope": scope, "name": name} | scores | facts


@dataclass(frozen=True)
class Results:
    """All runs of a comparison, in the order of its plan."""

    title: str
    runs: list[RunResult]
    problems: dict[RunKey, str]
    """Runs without scores: `MISSING`, `UNSCORED` or why the run failed."""
    keys: list[RunKey]
    """Scored runs and those without scores."""
    roles: dict[str, str]
    """The methods of the roles `reference`, `proposed` and `effects`."""

    def write_csv(self, path: Path) -> None:
        """Write one row per run, set and scope, and one per run without scores."""
        by_key = {run.key: run for run in self.runs}
        first: dict[str, dict[str, Any]] = {}
        rows: list[dict[str, Any]] = []
        for key in self.keys:
            run = by_key.get(key)
            if run is None:
                rows.append(key._asdict() | {"problem": self.problems[key]} | self._role(key.method, ""))
                continue
            base = first.setdefault(run.facts["base_method"], {})
            changed = {name: run.settings.get(name) for name in base | run.settings}
            changed = {name: value for name, value in changed.items() if name not in base or base[name] != value}
            base |= changed if not base else {}
            more = self._role(key.method, run.facts["base_method"]) | {"settings": json.dumps(changed)}
            rows += (row | more if row["scope"] == "all" else row for row in run.rows())
        buffer = BytesIO()
        csv.write_csv(pa.Table.from_pylist(rows, SCHEMA), buffer)
        write_bytes(path, buffer.getvalue())

    def _role(self, method: str, base: str) -> dict[str, str]:
        roles = [role for role, of in self.roles.items() if of == (base if role == "effects" else method)]
        return {"role": " ".join(roles)} if roles else {}


def read_results(path: Path) -> Results:
    """Read a results CSV, or the finished runs of a folder.

    A folder's `plan.json` gives the order of runs, their roles and which are missing. Without one, runs are ordered by
    name and `supervised` is the reference if it is there.
    """
    return _read_csv(path) if path.suffix == ".csv" else _read_folder(path)


def _read_csv(path: Path) -> Results:
    options = csv.ConvertOptions(
        column_types=SCHEMA, include_columns=SCHEMA.names, strings_can_be_null=True, null_values=[""]
    )
    require_regular_file(path)
    try:
        rows = csv.read_csv(path, convert_options=options).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise UserError(f"{path} is not a CSV that `suture compare` has written ({error}).") from error
    keys, runs = dict[RunKey, None](), dict[RunKey, RunResult]()
    problems, roles, first = dict[RunKey, str](), dict[str, str](), dict[str, dict[str, Any]]()
    for row in rows:
        key = RunKey(row["dataset"], row["labelling"], row["method"], row["point"] or "", row["seed"])
        keys[key] = None
        for role in (row["role"] or "").split():
            roles[role] = row["base_method"] if role == "effects" else key.method
        if row["problem"]:
            problems[key] = row["problem"]
            continue
        run = runs.setdefault(key, RunResult(key, {}, {}, {}))
        run.scores[row["set"], row["scope"], row["name"] or ""] = _known(row)
        if row["scope"] == "all":
            run.facts.update({name: row[name] for name in _RUN_COLUMNS if name not in ("role", "problem", "settings")})
            base = first.setdefault(row["base_method"], run.settings)
            run.settings.update(base | parse_json(row["settings"], str(path)))
    return Results(path.stem, list(runs.values()), problems, list(keys), roles)


def merged(results: Results, earlier: Results) -> Results:
    """Take the runs that are missing from earlier results."""
    runs = {run.key: run for run in earlier.runs} | {run.key: run for run in results.runs}
    problems = {key: problem for key, problem in results.problems.items() if key not in runs}
    return replace(results, runs=[runs[key] for key in results.keys if key in runs], problems=problems)


def _read_folder(folder: Path) -> Results:
    paths = sorted(folder.glob("runs/*/metrics.json")) or sorted(folder.glob("*/metrics.json"))
    found = {path.parent.name: path.parent for path in paths}
    plan = read_record(folder / PLAN, PlanRecord) if (folder / PLAN).exists() else {}
    failed = read_record(folder / FAILED, FailuresRecord) if (folder / FAILED).exists() else {}
    runs, problems, keys = dict[RunKey, RunResult](), dict[RunKey, str](), list[RunKey]()
    for name in plan.get("runs", found):
        run, problem = None, failed.get(name, MISSING)
        if name in found:
            try:
                run = read_run(found[name])
            except UserError as error:
                if not plan:
                    raise
                problem = str(error)
        key = run.key if run else RunKey.of_name(name)
        if key is None:
            continue
        keys.append(key)
        if run is None or not run.scores:
            problems[key] = UNSCORED if run else problem
        elif key in runs:
            raise UserError(f"{folder}: {key.name} is there twice, the second time as {name}: move one of them.")
        else:
            runs[key] = run
    if not runs:
        reasons = [f"{key.name}: {problem}" for key, problem in problems.items() if problem != MISSING]
        raise UserError("\n".join(reasons) or f"{folder} has no finished run: expected runs with a metrics.json.")
    methods = list(dict.fromkeys(key.method for key in keys))
    reference = plan.get("reference") or ("supervised" if "supervised" in methods else methods[0])
    roles = {"reference": reference, "proposed": plan.get("proposed", ""), "effects": plan.get("effects", "")}
    return Results(plan.get("title", folder.name), list(runs.values()), problems, keys, roles)


def read_run(folder: Path) -> RunResult:
    """Read scores, facts and settings of a scored run."""
    run = Run(folder)
    run.validate()
    key = RunKey.of_name(folder.name) or RunKey(
        _dataset_name(run), labelling_name(run.config_record["data"]["labelling"]), run.method_name, "", run.seed
    )
    scores: dict[tuple[str, str, str], dict[str, Any]] = {}
    for which, content in run.metrics.items():
        low, high = content["primary"]["interval"] or (None, None)
        scores[which, "all", ""] = _known(content["overall"] | {"low": low, "high": high})
        of_class = {name: content["classes"].get(name, {}) for name in run.classes}
        for scope, rows in (("case", content["cases"]), ("video", content["videos"]), ("class", of_class)):
            scores |= {(which, scope, name): _known(row) for name, row in rows.items()}
    return RunResult(key, _facts(run), scores, deciding_settings(run.config_record))


def _known(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {name: scores[name] for name in ("frames", *SCORES, "low", "high") if scores.get(name) is not None}


def _facts(run: Run) -> dict[str, Any]:
    config, metrics, stages, starts = run.config_record, run.metrics, run.stage_records, run.starts
    trained = [done for done in stages.values() if done.get("steps") and "batch" in done]
    images = sum(done["steps"] * effort.images_of_a_step(done) for done in trained)
    precisions = {start["precision"] for start in starts}
    scored_in = {content["precision"] for content in metrics.values() if content.get("precision")}
    evaluation, compute = config["evaluation"], config.get("compute", {})
    workers = compute.get("workers")
    versions = [effort.digest([start[key] for key in ("suture", "python", "packages")]) for start in starts]
    return {
        "primary": next((content["primary"]["score"] for content in metrics.values()), "miou"),
        "dataset_name": run.dataset_name,
        "base_method": run.method_name,
        "notes": "; ".join(distinct(note for content in metrics.values() for note in content["notes"])) or None,
        "labelled_frames": len(run.data["labelled"]),
        "training_frames": run.training_frames,
        "per_sequence": any(content["per_sequence"] for content in metrics.values()),
        "labels_alone": effort.labels_alone(stages),
        "chosen_by_validation": any(done.get("best") for done in stages.values()),
        "minutes": run.seconds / 60,
        "memory_gib": run.peak_memory / GIB if run.peak_memory else None,
        "images_per_second": images / sum(done["seconds"] for done in trained) if trained else None,
        "stage_minutes": json.dumps({name: round(done["seconds"] / 60, 6) for name, done in stages.items()}),
        **{fact.removeprefix("data.").replace(" ", "_"): value for fact, value in run.effort.items()},
        "split": _split(run.data["videos"]),
        "classes": effort.digest(run.classes),
        "protocol": ", ".join(sorted({content["protocol"] for content in metrics.values()})),
        "background_in_the_means": str(evaluation["include_background"]),
        "flip_at_evaluation": str(evaluation["flip"]),
        "scales_at_evaluation": ", ".join(f"{scale:g}" for scale in evaluation["scales"]),
        "precision": " and ".join(sorted(precisions)),
        "precision_at_evaluation": "as trained" if scored_in <= precisions else " and ".join(sorted(scored_in)),
        "validation_on": effort.scored_on(metrics.get("val"), run.classes),
        "test_on": effort.scored_on(metrics.get("test"), run.classes),
        "labels": f"{len(run.data['labelled'])} ({effort.digest(run.data['labelled'])})",
        "completion_on": effort.scored_on(metrics.get(COMPLETION), run.classes),
        **{name: _over_starts(starts, name) for name in ("device", "threads", "commit", "runs_at_a_time")},
        "compile": str(compute.get("compile", "auto")).lower(),
        "workers": "auto" if workers is None else str(workers),
        "versions": " and ".join(distinct(versions)),
        "config": config_digest(config),
    }


def config_digest(config: Mapping[str, Any]) -> str:
    """Digest of the settings that decide a run's outcome."""
    return effort.digest(deciding_settings(config))


def _split(videos: Mapping[str, Mapping[str, Any]]) -> str:
    """Number of videos in each split, and a digest of their frames."""
    counts = Counter(video["split"] or "none" for video in videos.values())
    keys = ("split", "frames", "excluded", "take_every", "masked", "sha256")
    frames = {name: {key: video.get(key) for key in keys} for name, video in videos.items()}
    parts = ", ".join(f"{split} {counts[split]}" for split in ("train", "val", "test", "none") if counts[split])
    return f"{parts} ({effort.digest(frames)})"


def _over_starts(starts: Sequence[Mapping[str, Any]], key: str) -> str | None:
    values: list[Any] = [start.get(key) for start in starts]
    if None in values:
        return None
    return str(max(values)) if key == "runs_at_a_time" else " and ".join(map(str, distinct(values)))


def _dataset_name(run: Run) -> str:
    """Dataset and options of a run that no plan names; only the last part of a path."""
    options = sorted(run.config_record["data"].get("options", {}).items())
    return ", ".join([run.dataset_name, *(f"{key}={PurePath(str(value)).name}" for key, value in options)])


def distinct(values: Iterable[Any]) -> list[Any]:
    """Keep the first of equal values, in order.

    >>> distinct([2, 1, 2])
    [2, 1]
    """
    return list(dict.fromkeys(values))
