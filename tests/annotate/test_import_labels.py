"""Labels come back into a dataset, whatever the tool, or every problem is listed and nothing is written."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from suture.annotate.drafts import Draft, ToolLabels
from suture.annotate.import_labels import import_labels
from suture.annotate.tools import TOOLS
from suture.cli import app
from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.data.labelling import frame_name

CLASSES = [
    {"name": "tissue", "value": 7},
    {"name": "tool", "value": [3, "Tool_2"]},
    {"name": "blur", "value": 9, "ignore": True},
]
IDS = np.zeros((6, 8), np.uint8)
IDS[1:4, 2:5] = 1
IDS[5, 7] = 255


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two videos of three frames; classes with ids and labels, and ignored unpainted pixels."""
    root = tmp_path / "data"
    for video in ("case 1", "b"):
        (root / "videos" / video).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 6)).save(root / f"videos/{video}/{number}.png")
    write_file(root, masks="masks", classes=CLASSES)
    (root / "masks").mkdir()
    return root


def write_file(root: Path, **content: Any) -> None:
    (root / "dataset.yaml").write_text(yaml.safe_dump({"videos": "videos", "unpainted": "ignore", **content}))


def export(
    folder: Path, *frames: str, name: str = "round1", labels: Any = ("tissue", "Tool_2"), ids: Any = IDS
) -> Path:
    """A COCO file with the same mask on each frame."""
    drafts = [Draft(frame, ids.shape[1], ids.shape[0], ids) for frame in frames]
    TOOLS["coco"].write(folder, drafts, ToolLabels.of(labels, {}))
    return (folder / "annotations.json").rename(folder / f"{name}.json")


def test_imported_labels_are_masks_of_the_dataset(root: Path, tmp_path: Path) -> None:
    result = import_labels(root, [export(tmp_path, frame_name("case 1", 2), "b/1")])
    assert result.counts == {"case 1": 1, "b": 1}
    dataset = load_dataset(root)
    assert {video.id: video.with_mask for video in dataset} == {"b": [1], "case 1": [2]}
    assert (dataset.read_mask(dataset["b"], 1) == IDS).all()


def test_labels_become_the_classes_of_a_dataset_without_any(root: Path, tmp_path: Path) -> None:
    (root / "dataset.yaml").unlink()
    import_labels(root, [export(tmp_path, frame_name("b", 0), labels=("background", "clip"))])
    write_file(root, masks="masks", classes=[{"name": "background"}, {"name": "clip"}])
    dataset = load_dataset(root)
    assert (dataset.read_mask(dataset["b"], 0) == IDS).all()


def test_every_problem_is_listed_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((6, 8), 7, np.uint8)).save(root / "masks/b__frame_000002.png")
    first = export(tmp_path, *(frame_name("b", index) for index in (0, 2, 9)), "nowhere", "case 1/1")
    second = export(tmp_path, frame_name("case 1", 0), name="wide", ids=IDS.repeat(2, 1))
    third = export(
        tmp_path, frame_name("case 1", 0), frame_name("case 1", 2), name="round2", labels=("tissue", "gauze")
    )
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    content = json.loads(first.read_text())
    content["annotations"][-1]["segmentation"]["counts"] = [1]
    first.write_text(json.dumps(content))
    with pytest.raises(UserError) as error:
        import_labels(root, [first, second, third, broken])
    problems = str(error.value).splitlines()
    for expected in (
        "^8 problems",
        r"b__frame_000009",
        r"nowhere fits no frame",
        r"b__frame_000002: the frame has the mask .*masks/b__frame_000002\.png",
        r"case 1/1 has a shape that cannot be drawn",
        r"16×6 on a frame of 8×6",
        r"round2\.json: case 1__frame_000000: the frame has the mask .*wide",
        r"the label gauze \(1 frame\) is no class",
        r"broken\.json is not valid JSON",
    ):
        assert [problem for problem in problems if re.search(expected, problem)], (expected, problems)
    assert [path.name for path in (root / "masks").iterdir()] == ["b__frame_000002.png"]


def test_an_import_is_replaced_only_by_force(root: Path, tmp_path: Path) -> None:
    path = export(tmp_path, frame_name("b", 0))
    import_labels(root, [path])
    with pytest.raises(UserError, match="--force"):
        import_labels(root, [path])
    path = export(tmp_path, frame_name("b", 1), ids=np.zeros_like(IDS), labels=("Tool_2", "tissue"))
    import_labels(root, [path], force=True)
    dataset = load_dataset(root)
    assert dataset["b"].with_mask == [1]
    assert (dataset.read_mask(dataset["b"], 1) == 1).all()


def test_an_export_without_a_labelled_frame_is_a_problem(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 labelled frames"):
        import_labels(root, [export(tmp_path)])


def test_masks_of_bare_ids_are_no_export(root: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    Image.fromarray(IDS).save(tmp_path / "plain/b__frame_000000.png")
    with pytest.raises(UserError, match=r"without labelmap\.txt"):
        import_labels(root, [tmp_path / "plain"])


def test_the_command_says_what_was_imported_and_what_follows(root: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["labels", "import", str(root), str(export(tmp_path, frame_name("b", 0)))])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1 mask of 1 video in ")
    assert "Next: suture check" in result.output
