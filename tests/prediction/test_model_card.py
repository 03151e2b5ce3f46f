"""The model card states what the run's folder holds, and no path."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from suture.core.errors import UserError
from suture.deployment.export import run_origin
from suture.deployment.model_card import render_card
from suture.training.run_folder import Run

Change = Callable[[Any], None]


@pytest.fixture
def changed(finished: Path, tmp_path: Path) -> Callable[..., str]:
    """Renders the card of the run after changes of its files."""

    def render(**changes: Change) -> str:
        run = tmp_path / "tiny"
        shutil.copytree(finished, run, dirs_exist_ok=True)
        for name, change in changes.items():
            path = run / ("config.yaml" if name == "config" else f"{name}.json")
            content = yaml.safe_load(path.read_text())
            change(content)
            path.write_text(json.dumps(content))
        return render_card(Run(run))

    return render


def test_names_are_no_markup(changed: Callable[..., str]) -> None:
    card = changed(data=lambda data: data.update(dataset="<script>"))
    assert r"on \<script> at" in card
    assert " <script>" not in card


def test_it_states_classes_data_training_and_scores(finished: Path) -> None:
    run, card = Run(finished), render_card(Run(finished))
    for heading in ("Classes", "Data", "Training", "Scores", "Limits", "Made with"):
        assert f"\n## {heading}\n" in card
    assert "no medical device" in card
    assert "\n\n\n" not in card
    for which in ("test", "completion"):
        assert f"| {100 * run.metrics[which]['overall']['miou']:.1f} |" in card
    assert all(f"| {name} |" in card for name in run.classes)
    assert all(video["case"] in card for video in run.data["videos"].values())
    assert f"Labels it learned from: {len(run.data['labelled'])} of the" in card
    assert "| split | cases | videos | frames |\n| --- | --- | --- | --- |\n| train |" in card
    assert "| train | 60 steps | 8 | adamw |" in card
    assert "weights of the encoder: random." in card
    assert run.environment["packages"]["torch"] in card


def test_it_names_no_path(finished: Path) -> None:
    assert "patient-doe" not in render_card(Run(finished)) + json.dumps(run_origin(Run(finished)))


def test_an_unscored_run(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run/metrics.json").unlink()
    card = render_card(Run(tmp_path / "run"))
    assert "the run was not evaluated" in card
    assert "its quality on new videos is unknown" in card


def test_limits_tell_weak_unseen_and_unscored_classes_apart(changed: Callable[..., str]) -> None:
    names: list[str] = []

    def change(metrics: Any) -> None:
        classes = metrics["test"]["classes"]
        names.extend(classes)
        classes[names[0]] = {"iou": 0.0, "frames": 0}
        classes[names[1]] = {"iou": 0.25, "frames": 3}
        classes[names[2]] = {"iou": None, "frames": 0}
        del classes[names[-1]]

    card = changed(metrics=change)
    predicted, weak, unseen, *_, left_out = names
    poor = next(line for line in card.splitlines() if "Poorly found" in line)
    assert f"{weak} (25.0)" in poor
    assert f"{predicted} (" not in poor
    assert f"- Could not be judged, as no test video shows it: {unseen}." in card
    assert f"- Predicted in test videos, though none shows it: {predicted}. Each counts as 0" in card
    assert f"- Not scored in test videos: {left_out}." in card


def test_completion_is_explained_only_if_it_was_scored(changed: Callable[..., str]) -> None:
    assert "Completion is on the unlabelled frames" in changed()
    assert "ompletion" not in changed(metrics=lambda metrics: metrics.pop("completion"))


def test_remarks_on_the_scores(changed: Callable[..., str]) -> None:
    def change(metrics: Any) -> None:
        metrics["val"] = metrics.pop("test") | {"notes": ["gauze left out"]}
        metrics["val"]["videos"]["later"] = next(iter(metrics["val"]["videos"].values()))

    card = changed(metrics=change, config=lambda config: config["method"]["train"].update(best_every=20))
    assert "|\n\n- The weights were chosen by the validation videos: scores on these flatter it.\n" in card
    assert "- Of the videos scored as new, later came into the splits after the training.\n" in card
    assert "- gauze left out.\n\nIoU of each class" in card
    assert "\n\n\n" not in card


def test_weights_with_their_origin_and_licence(changed: Callable[..., str]) -> None:
    file = {"name": "resnet50.pth", "sha256": "ab" * 32, "origin": "torchvision", "licence": None}
    card = changed(data=lambda data: data.update(weights=file))
    assert f"resnet50.pth; origin: torchvision; licence: not stated; SHA-256 `{'ab' * 32}`" in card
    hub = {"hub": "imagenet", "sha256": "cd" * 32}
    assert "imagenet, from the hub; origin: not stated" in changed(data=lambda data: data.update(weights=hub))


def test_a_name_stays_in_its_cell(changed: Callable[..., str]) -> None:
    first = {"name": "a|b", "color": [1, 2, 255]}
    assert "| 0 | a\\|b | #0102ff |" in changed(model=lambda model: model["classes"].__setitem__(0, first))


def test_an_unfinished_run_has_no_card(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((finished / "config.yaml").read_text())
    with pytest.raises(UserError, match=r"model\.json"):
        render_card(Run(tmp_path))
