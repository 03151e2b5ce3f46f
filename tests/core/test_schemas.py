"""What Suture wrote is read as it stands, and a sentence says where it has been changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from suture.core.errors import UserError
from suture.core.schemas import (
    DataRecord,
    EnvironmentRecord,
    MetricsRecord,
    ShotsRecord,
    StageRecord,
    Summary,
    read_record,
)
from suture.evaluation.titles import SCORES

DATA = {"dataset": "d", "protocol": "p", "classes": [], "videos": {}, "labelled": {}}
SCORES_OF_NOTHING = {
    "protocol": "p",
    "notes": [],
    "per_sequence": False,
    "primary": {"score": "miou", "value": None, "interval": None},
    "boundary_tolerance": 2,
    "overall": {"frames": 0, **dict.fromkeys(("miou", "miou_frames", "dice", "pa", "pac", "nsd"))},
    "classes": {},
    "cases": {},
    "videos": {},
}


@pytest.mark.parametrize(
    ("shape", "content", "where"),
    [
        (EnvironmentRecord, [], "input should be a valid dictionary"),
        (EnvironmentRecord, {"starts": []}, "starts: list should have at least 1 item"),
        (EnvironmentRecord, {"starts": 3}, "starts: input should be a valid list"),
        (StageRecord, {"steps": 4}, "seconds: field required"),
        (StageRecord, {"seconds": "long"}, "seconds: input should be a valid number"),
        (ShotsRecord, {"a": [0, "x"]}, "a.1: input should be a valid integer"),
        (DataRecord, "cut", "input should be a valid dictionary"),
    ],
)
def test_the_place_that_was_changed_is_named(shape: type[BaseModel], content: Any, where: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        read_record(path, shape)
    assert str(caught.value).startswith(f"{path} is not as Suture wrote it ({where}")
    assert str(caught.value).endswith("): put back a whole copy, or make it again.")


def test_weights_are_named_and_a_confusion_is_a_square(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(DATA | {"weights": {"sha256": "0"}}))
    with pytest.raises(UserError, match=r"weights: expected the key hub or name"):
        read_record(path, DataRecord)
    metrics = {"test": SCORES_OF_NOTHING | {"confusion": [[1, 2], [3]]}}
    path.write_text(json.dumps(metrics))
    with pytest.raises(UserError, match=r"\.confusion: expected as many columns as rows"):
        read_record(path, MetricsRecord)


def test_every_score_that_is_shown_is_looked_for() -> None:
    assert {score.key for score in SCORES} <= set(Summary.model_fields)
