"""A model is scored only on labels with its own classes."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from suture.core.errors import UserError
from suture.training.train import Run, evaluate_run, train


def test_labels_of_other_classes_are_refused(finished: Path, dataset: Path, tmp_path: Path) -> None:
    run, data = shutil.copytree(finished, tmp_path / "run"), shutil.copytree(dataset, tmp_path / "data")
    config = (run / "config.yaml").read_text()
    root = next(line for line in config.splitlines() if line.strip().startswith("root:"))
    (run / "config.yaml").write_text(config.replace(root, f"  root: {data}"))
    file = data / "dataset.yaml"
    file.write_text(file.read_text().replace("name: liver", "name: spleen"))
    with pytest.raises(UserError, match=r"data has now \(liver is gone and spleen is new\): restore"):
        evaluate_run(run)
    with pytest.raises(UserError, match=r"started with other data \(classes\.liver"):
        train(Run(run).config, run, Console(quiet=True))
