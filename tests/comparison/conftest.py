"""Finished runs by hand: the small files that tables are made of."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.core.io import write_json, write_text

Write = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Writes a finished run named `NAME` into `tmp_path/runs`; `data=None` leaves data.json out.

    `runs_at_a_time` has a number for each start; without any there is one start that does not say it, as of old.
    What else environment.json says of every start can be given by name.
    """

    def write(
        name: str,
        metrics: dict[str, Any],
        *,
        stages: Mapping[str, dict[str, Any]] | None = None,
        size: int = 64,
        encoder: str = "resnet50",
        data: dict[str, Any] | None = {},  # noqa: B006
        labelled: int = 2,
        config: dict[str, Any] | None = None,
        runs_at_a_time: tuple[int | None, ...] = (),
        **machine: Any,
    ) -> Path:
        folder = tmp_path / "runs" / name
        said = {
            "format": 1,
            "seed": int(name.rpartition("-")[2]),
            "method": {"name": name.split("__")[2] if "__" in name else "supervised"},
            "data": {"root": "../../../data", "size": size, "labelling": {"every": 10}, "cache": None},
            "model": {"architecture": "deeplabv3", "encoder": encoder, "output_stride": 8, "weights": None},
            "evaluation": {"include_background": True, "flip": False, "scales": [1.0]},
        } | (config or {})
        write_text(folder / "config.yaml", yaml.safe_dump(said))
        write_json(folder / "metrics.json", metrics)
        done = stages or {"train": {"steps": 100, "batch": 8, "seconds": 60.0, "peak_memory": None}}
        for number, (stage, result) in enumerate(done.items(), 1):
            write_json(folder / "stages" / f"{number}-{stage}" / "done.json", result)
        if data is not None:
            videos = {
                "v1": {"case": "c0", "split": "train", "frames": 22, "excluded": [3, 4], "sha256": "a", "view": None},
                "v2": {"case": "c1", "split": "test", "frames": 10, "excluded": [], "sha256": "b", "view": None},
            }
            of_frames = {f"v1/{index}": f"mask {index}" for index in range(labelled)}
            record: dict[str, Any] = {
                "dataset": "hands",
                "protocol": "by-hand",
                "videos": videos,
                "labelled": of_frames,
                "weights": None,
                "classes": [],
            }
            write_json(folder / "data.json", record | data)
            usual = {"device": "an abacus", "commit": "abc", "suture": "0", "python": "3", "precision": "32"}
            starts = [{"runs_at_a_time": count} for count in runs_at_a_time] or [{}]
            said = [usual | {"packages": {}} | machine | one for one in starts]
            write_json(folder / "environment.json", {"starts": said})
        return folder

    return write
