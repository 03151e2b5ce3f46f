"""Finished runs written by hand: the small files that tables are made of."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from by_hand import STAGES

from suture.comparison.board import Board, boards
from suture.comparison.results import read_results
from suture.core.io import write_json, write_text

Write = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Writes a finished run named `NAME` into `tmp_path/runs`; `starts` and `machine` change its environment.json."""

    def write(
        name: str,
        metrics: dict[str, Any],
        *,
        stages: Mapping[str, dict[str, Any]] = STAGES,
        size: int = 64,
        encoder: str = "resnet50",
        data: Mapping[str, Any] | None = None,
        labelled: int = 2,
        config: Mapping[str, Any] | None = None,
        starts: tuple[Mapping[str, Any], ...] = ({},),
        **machine: Any,
    ) -> Path:
        folder = tmp_path / "runs" / name
        settings = {
            "format": 1,
            "seed": int(name.rpartition("-")[2]),
            "method": {"name": name.split("__")[2] if "__" in name else "supervised"},
            "data": {"root": "../../../data", "size": size, "labelling": {"every": 10}, "cache": None},
            "model": {"architecture": "deeplabv3", "encoder": encoder, "output_stride": 8, "weights": None},
            "evaluation": {"include_background": True, "flip": False, "scales": [1.0]},
        } | dict(config or {})
        write_text(folder / "config.yaml", yaml.safe_dump(settings))
        write_json(folder / "metrics.json", metrics)
        for number, (stage, done) in enumerate(stages.items(), 1):
            write_json(folder / "stages" / f"{number}-{stage}" / "done.json", done)
        videos = {
            "v1": {"case": "c0", "split": "train", "frames": 22, "excluded": [3, 4], "sha256": "a", "view": None},
            "v2": {"case": "c1", "split": "test", "frames": 10, "excluded": [], "sha256": "b", "view": None},
        }
        record = {
            "dataset": "hands",
            "protocol": "by-hand",
            "videos": videos,
            "labelled": {f"v1/{index}": f"mask {index}" for index in range(labelled)},
            "weights": None,
            "classes": [],
        }
        write_json(folder / "data.json", record | dict(data or {}))
        usual = {"device": "an abacus", "commit": "abc", "suture": "0", "python": "3", "precision": "32"}
        usual |= {"packages": {}, "threads": 1, "runs_at_a_time": 1}
        write_json(folder / "environment.json", {"starts": [usual | machine | dict(start) for start in starts]})
        return folder

    return write


@pytest.fixture
def read_board(tmp_path: Path) -> Callable[[], Board]:
    """Reads the only dataset of the runs in `tmp_path/runs`."""

    def read() -> Board:
        (board,) = boards(read_results(tmp_path))
        return board

    return read
