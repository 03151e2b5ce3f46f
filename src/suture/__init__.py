"""Suture: label a few frames, segment every video.

>>> import suture
>>> run = suture.train("videos")  # doctest: +SKIP
>>> mask = suture.Predictor(run.folder)(frame)  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suture.data.dataset import Dataset
    from suture.prediction.predictor import Predictor
    from suture.training.python_api import adapt, evaluate, load_dataset, train
    from suture.training.run_folder import Run

__version__ = "0.1.0"
__all__ = ["Dataset", "Predictor", "Run", "adapt", "evaluate", "load_dataset", "train"]
_MODULES = {
    "Dataset": "suture.data.dataset",
    "Predictor": "suture.prediction.predictor",
    "Run": "suture.training.run_folder",
    "adapt": "suture.training.python_api",
    "evaluate": "suture.training.python_api",
    "load_dataset": "suture.training.python_api",
    "train": "suture.training.python_api",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    # On first use: every room imports this package, and torch takes seconds.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'suture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
