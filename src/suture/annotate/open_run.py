"""A finished run as the source of the next selection."""

from dataclasses import replace
from pathlib import Path

from suture.data.dataset import Dataset
from suture.prediction.predictor import Predictor
from suture.training.run_folder import Run
from suture.training.train import open_data_of


def open_run(folder: Path) -> tuple[Dataset, Predictor]:
    """Open the training videos of a run, with the masks that they have today, and its model.

    Videos for validation and test are left out: frames that are hard for the model would bias their scores.
    """
    run = Run(folder)
    dataset = open_data_of(run.data, run.config).dataset
    return replace(dataset, videos=dataset.split("train")), Predictor(folder)
