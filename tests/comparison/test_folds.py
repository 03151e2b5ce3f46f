"""Cross-validation: the planned folds, and the scores over all cases."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from by_hand import scores

from suture.comparison.board import boards
from suture.comparison.plan import read_plan
from suture.comparison.results import read_results
from suture.core.errors import UserError

Write = Callable[..., Path]


def test_every_dataset_is_planned_in_folds(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    content = {"datasets": {"made": {"root": "data"}}, "methods": ["supervised"], "seeds": [0], "folds": 2}
    file.write_text(yaml.safe_dump(content))
    runs = read_plan(file).runs
    assert [run.name for run in runs] == [f"made-fold-{fold}-of-2__all__supervised__seed-0" for fold in (1, 2)]
    assert [run.config.data.fold for run in runs] == [(1, 2), (2, 2)]
    file.write_text(yaml.safe_dump(content | {"folds": 1}))
    with pytest.raises(UserError, match="folds is 1"):
        read_plan(file)


def test_scores_of_all_folds_are_means_over_cases(tmp_path: Path, write_run: Write) -> None:
    for seed in (0, 1):
        for fold, cases in ((1, {"c1": 0.2, "c2": 0.4}), (2, {"c3": 0.6})):
            for method, gain in (("supervised", 0.0), ("pgvcl", 0.1)):
                metrics = {"test": scores(0.9, cases={name: value + gain for name, value in cases.items()})}
                write_run(f"d-fold-{fold}-of-2__every-10__{method}__seed-{seed}", metrics)
    write_run("d-fold-1-of-2__every-10__alone__seed-0", {"test": scores(0.9)})
    pooled, *folds = boards(read_results(tmp_path))
    assert (pooled.dataset, [board.dataset for board in folds]) == ("d-2-folds", ["d-fold-1-of-2", "d-fold-2-of-2"])
    assert {row.title: row.values("test", "miou") for row in pooled.rows} == {
        "pgvcl": {seed: pytest.approx(0.5) for seed in (0, 1)},
        "supervised": {seed: pytest.approx(0.4) for seed in (0, 1)},
    }
    assert pooled.cases("test") == 3
    assert pooled.runs[0].facts["minutes"] == 2
