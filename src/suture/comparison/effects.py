"""Effects of settings in a comparison that changes several at a time, fitted by least squares."""

import json
from collections.abc import Sequence

import numpy as np

from suture.comparison.results import Results, RunResult, distinct
from suture.core.errors import UserError
from suture.evaluation.protocols import COMPLETION
from suture.web.table import Table, TableCell

SCORES = ("new videos, mIoU", "new videos, per frame", "completion, mIoU", "completion, per frame")
SUM = "per frame on new videos + mIoU in completion"
FOLDS = "data.validation"


def effects_table(results: Results) -> Table | None:
    """Difference between the two values of each varied setting, with its standard error.

    Runs of the base method in the role `effects` are fitted as a sum of one effect per setting. Settings that change
    together are one factor. Three or more folds each have a level of their own, which is not shown; seeds are a factor
    only if there are two.
    """
    method = results.roles.get("effects")
    if not method:
        return None
    runs = [run for run in results.runs if run.facts["base_method"] == method]
    columns = factors(runs)
    folds = _values(runs, FOLDS)
    levels = [[_value(run, FOLDS) == fold for run in runs] for fold in folds[1:]] if len(folds) > 2 else []
    table = zip(*columns.values(), *levels, strict=True)
    design = np.array([[1.0, *(0.5 if high else -0.5 for high in row)] for row in table])
    free = len(runs) - 1 - len(columns) - len(levels)
    if not columns or free < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None  # too few runs are finished
    measured = np.array([_scores(run) for run in runs])
    fitted, *_ = np.linalg.lstsq(design, measured, rcond=None)
    variance = ((measured - design @ fitted) ** 2).sum(0) / free
    errors = np.sqrt(np.outer(np.diag(np.linalg.inv(design.T @ design)), variance))
    rows = []
    for name, means, of_mean in zip(columns, fitted[1:], errors[1:], strict=False):  # levels of folds come last
        texts = (f"{mean:+.1f} ± {error:.1f}".replace("-", "−") for mean, error in zip(means, of_mean, strict=True))
        rows.append([TableCell(name), *map(TableCell, texts)])
    return Table(
        title=f"Effects of the settings of {method}",
        label="effects",
        columns=["Setting", *SCORES, SUM],
        groups=[rows],
        notes=[
            "Difference of the two values in percent points, with its standard error.",
            f"Least squares over {len(runs)} runs, {free} degrees of freedom.",
            "Classes that no training video shows are left out of mIoU.",
        ],
    )


def factors(runs: Sequence[RunResult]) -> dict[str, list[bool]]:
    """Settings with two values, and the runs that have the second one."""
    found: dict[str, list[bool]] = {}
    for key in distinct(key for run in runs for key in run.settings):
        values = _values(runs, key)
        if "null" in values:  # a setting that some runs do not have
            continue
        if len(values) > 2 and key not in (FOLDS, "seed"):
            raise UserError(f"{key} has the values {', '.join(values)}, expected two at most to fit effects.")
        column = [_value(run, key) == values[-1] for run in runs]
        if len(values) == 2 and not any(column in (other, [not high for high in other]) for other in found.values()):
            found[f"{key.removeprefix('method.train.')}: {values[0]} → {values[1]}"] = column
    return found


def _value(run: RunResult, key: str) -> str:
    return json.dumps(run.settings.get(key))


def _values(runs: Sequence[RunResult], key: str) -> list[str]:
    return sorted({_value(run, key) for run in runs})


def _scores(run: RunResult) -> list[float]:
    """Scores on new videos, in completion, and the sum that settings are chosen by, in percent."""
    # Completion shows every class that the training videos show.
    learnt = {name for name in run.names(COMPLETION, "class") if run.score(COMPLETION, "class", name, "frames")}
    scores = []
    for which in ("val", COMPLETION):
        shown = [name for name in sorted(learnt) if run.score(which, "class", name, "frames")]
        ious = [run.score(which, "class", name, "iou") or 0.0 for name in shown]
        scores += [100 * float(np.mean(ious)), 100 * (run.score(which, "all", "", "miou_frames") or 0.0)]
    return [*scores, scores[1] + scores[2]]
