"""Scores by hand, as `metrics.json` has them, and what tables make of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suture.core.io import write_json

STAGES = {"train": {"steps": 100, "batch": 8, "seconds": 60.0, "peak_memory": None, "labels_alone": True}}
"""Content of `done.json` of the stages of a run."""


def summary(miou: float | None, pa: float = 0.9, pac: float = 0.8, **more: Any) -> dict[str, Any]:
    return {"frames": 10, "miou": miou, "miou_frames": miou, "pa": pa, "pac": pac, "dice": miou, "nsd": miou, **more}


def scores(
    miou: float,
    *,
    videos: Mapping[str, float] | None = None,
    cases: Mapping[str, float] | None = None,
    classes: Mapping[str, float | None] | None = None,
    per_sequence: bool = False,
    interval: list[float] | None = None,
    primary: str = "miou",
    **overall: float,
) -> dict[str, Any]:
    """Scores of one set."""
    return {
        "protocol": "by-hand",
        "notes": ["scored by hand"],
        "per_sequence": per_sequence,
        "primary": {"score": primary, "value": miou, "interval": interval},
        "overall": summary(miou, **overall),
        "classes": {name: {"iou": iou, "frames": 10} for name, iou in (classes or {}).items()},
        "boundary_tolerance": 2.0,
        "videos": {name: summary(value) for name, value in (videos or {}).items()},
        "cases": {name: summary(value) for name, value in (cases or {"c1": miou}).items()},
    }


def write_plan(folder: Path, runs: list[str], **roles: str) -> None:
    write_json(folder / "plan.json", {"title": "p", "runs": runs} | roles)


def texts(rows: Any) -> list[list[str]]:
    """Cells as text: bold ones with a star before, marks behind."""
    return [[("*" if cell.bold else "") + cell.text + cell.mark for cell in row] for row in rows]


def best(rows: Any, column: int = 3) -> list[str]:
    """Titles of the rows that are bold in a column."""
    return [row[0].text for row in rows if row[column].bold]
