"""Cross-validation: a dataset's folds as datasets of a comparison, and the scores of all folds together."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suture.comparison.plan import RunKey
from suture.comparison.results import SCORES, Results, RunResult, distinct
from suture.evaluation.protocols import case_interval

_FOLD = re.compile(r"(.+)-fold-\d+-of-(\d+)")


def with_pooled_folds(results: Results) -> Results:
    """Add the scores over all cases for each run with all its folds."""
    folds: dict[tuple[RunKey, int], list[RunResult]] = {}
    for run in results.runs:
        if match := _FOLD.fullmatch(run.key.dataset):
            key = run.key._replace(dataset=f"{match[1]}-{match[2]}-folds")
            folds.setdefault((key, int(match[2])), []).append(run)
    pooled = [_pool(key, runs) for (key, count), runs in folds.items() if len(runs) == count]
    return replace(results, runs=[*pooled, *results.runs], keys=[*(run.key for run in pooled), *results.keys])


def _pool(key: RunKey, runs: Sequence[RunResult]) -> RunResult:
    """Take the mean over cases as the overall score: each case is in the test set of one fold."""
    primary = runs[0].facts["primary"]
    scores: dict[tuple[str, str, str], dict[str, Any]] = {}
    for which in distinct(which for run in runs for which, _, _ in run.scores):
        cases = [run.scores[which, "case", name] for run in runs for name in run.names(which, "case")]
        interval = case_interval([row[primary] for row in cases if primary in row])
        ends = dict(zip(("low", "high"), interval, strict=True)) if interval else {}
        scores[which, "all", ""] = _mean(cases) | ends
        for scope in ("case", "video", "class"):
            for name in distinct(name for run in runs for name in run.names(which, scope)):
                rows = [run.scores[which, scope, name] for run in runs if (which, scope, name) in run.scores]
                scores[which, scope, name] = _mean(rows)
    minutes = sum(run.facts["minutes"] for run in runs)
    return RunResult(key, runs[0].facts | {"minutes": minutes}, scores, runs[0].settings)


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average scores and add up frames."""
    values = {name: [row[name] for row in rows if name in row] for name in SCORES}
    means = {name: float(np.mean(known)) for name, known in values.items() if known}
    return {"frames": sum(row.get("frames", 0) for row in rows)} | means
