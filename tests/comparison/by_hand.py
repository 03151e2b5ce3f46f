"""Scores by hand, as `metrics.json` has them."""

from collections.abc import Mapping
from typing import Any


def summary(miou: float | None, pa: float = 0.9, pac: float = 0.8, **more: Any) -> dict[str, Any]:
    return {"frames": 10, "miou": miou, "miou_frames": miou, "pa": pa, "pac": pac, "dice": miou, "nsd": miou, **more}


def scores(
    miou: float,
    *,
    videos: Mapping[str, float] | None = None,
    cases: Mapping[str, float] | None = None,
    per_sequence: bool = False,
    interval: list[float] | None = None,
    primary: str = "miou",
    **overall: float,
) -> dict[str, Any]:
    """The scores of one set, as `metrics.json` has them."""
    return {
        "protocol": "by-hand",
        "notes": ["scored by hand"],
        "per_sequence": per_sequence,
        "primary": {"score": primary, "value": miou, "interval": interval},
        "overall": summary(miou, **overall),
        "classes": {},
        "boundary_tolerance": 2.0,
        "videos": {name: summary(value) for name, value in (videos or {}).items()},
        "cases": {name: summary(value) for name, value in (cases or {"c1": miou}).items()},
    }
