"""The model card says what the run's folder says, and no path."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from suture.core.errors import UserError
from suture.deployment.model_card import Papers


@pytest.fixture(scope="module")
def papers(finished: Path) -> Papers:
    return Papers.read(finished)


def test_it_says_what_has_to_be_known(papers: Papers) -> None:
    card = papers.card()
    for heading in ("Classes", "Data", "Training", "Scores", "Limits", "Made with"):
        assert f"\n## {heading}\n" in card
    assert "no medical device" in card
    test, completion = (papers.metrics[which]["overall"]["miou"] for which in ("test", "completion"))
    assert f"| {100 * test:.1f} |" in card
    assert f"| {100 * completion:.1f} |" in card
    for one in papers.model["classes"]:
        assert f"| {one['name']} |" in card
    for video in papers.data["videos"].values():
        assert video["case"] in card
    labels = len(papers.data["labelled"])
    assert f"Labels it learned from: {labels} of the" in card
    assert "| split | cases | videos | frames |\n" in card
    assert "| train | 60 steps | 8 | adamw |" in card
    assert "weights of the encoder: random" in card
    assert papers.environment["packages"]["torch"] in card


def test_it_names_no_path(papers: Papers) -> None:
    assert "patient-doe" not in papers.card()
    assert "patient-doe" not in json.dumps(papers.origin())


def test_without_scores_it_says_so(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "metrics.json").unlink()
    card = Papers.read(run).card()
    assert "the run was not evaluated" in card
    assert "how it does on new ones is not known" in card


def test_a_class_that_no_test_video_shows_is_not_called_poorly_found(papers: Papers) -> None:
    predicted, *others = papers.metrics["test"]["classes"]
    weak, unseen, left_out = others[0], others[1], others[-1]
    told = {
        predicted: {"iou": 0.0, "frames": 0},
        weak: {"iou": 0.25, "frames": 3},
        unseen: {"iou": None, "frames": 0},
    }
    scores = {
        one: found | told.get(one, {}) for one, found in papers.metrics["test"]["classes"].items() if one != left_out
    }
    card = replace(papers, metrics={"test": papers.metrics["test"] | {"classes": scores}}).card()
    poor = next(line for line in card.splitlines() if "Poorly found" in line)
    assert f"{weak} (25.0)" in poor
    assert f"{predicted} (" not in poor
    assert f"- Could not be judged, as no test video shows it: {unseen}." in card, "it has no score"
    assert f"- Predicted in test videos, though none shows it: {predicted}. Each counts as 0 in the mIoU;" in card
    assert f"- Not scored in test videos: {left_out}." in card


def test_completion_is_explained_only_where_it_was_scored(papers: Papers) -> None:
    assert "Completion is on the unlabelled frames" in papers.card()
    without = replace(papers, metrics={"test": papers.metrics["test"]}).card()
    assert "by the protocol *default*.\n" in without
    assert "ompletion" not in without


def test_scores_on_videos_that_the_weights_were_chosen_by_are_told_as_such(papers: Papers) -> None:
    method = papers.config["method"]
    chosen = papers.config | {"method": method | {"train": method["train"] | {"best_every": 20}}}
    metrics = {"val": papers.metrics["test"]}
    said = "- The weights were chosen by the validation videos: scores on these flatter it.\n"
    assert said in replace(papers, config=chosen, metrics=metrics).card()
    assert said not in replace(papers, config=chosen, metrics={"test": papers.metrics["test"]}).card()
    assert said not in replace(papers, metrics=metrics).card()


def test_single_blank_lines_with_remarks_on_the_scores_and_without(papers: Papers) -> None:
    metrics = papers.metrics["test"]
    remarked = replace(papers, metrics={"test": metrics | {"notes": ["gauze left out"]}}).card()
    assert "|\n\n- gauze left out.\n\nIoU of each class" in remarked
    without = replace(papers, metrics={"test": metrics | {"notes": []}}).card()
    assert "|\n\nIoU of each class" in without
    assert "\n\n\n" not in remarked + without


def test_weights_with_their_origin_and_licence(papers: Papers) -> None:
    weights = {"name": "resnet50.pth", "sha256": "ab" * 32, "origin": "torchvision", "licence": None}
    card = replace(papers, data=papers.data | {"weights": weights}).card()
    assert f"resnet50.pth; origin: torchvision; licence: not stated; SHA-256 `{'ab' * 32}`" in card
    hub = replace(papers, data=papers.data | {"weights": {"hub": "imagenet", "sha256": "cd" * 32}}).card()
    assert "imagenet, from the hub; origin: not stated" in hub


def test_a_name_stays_in_its_cell(papers: Papers) -> None:
    classes = [{"name": "a|b", "color": [1, 2, 255]}, *papers.model["classes"][1:]]
    card = replace(papers, model=papers.model | {"classes": classes}).card()
    assert "| 0 | a&#124;b | #0102ff |" in card


def test_the_frame_is_known_where_all_views_are_alike(papers: Papers) -> None:
    def frame(*rects: list[int]) -> tuple[int, int] | None:
        videos = {str(number): {"view": {"rect": rect}} for number, rect in enumerate(rects)} | {"out": {"view": None}}
        return replace(papers, data={"videos": videos}).frame

    assert frame([0, 0, 1920, 1080], [0, 0, 1920, 1080]) == (1080, 1920)
    assert frame([0, 0, 1920, 1080], [0, 0, 1280, 1080]) is None
    assert frame() is None


def test_an_unfinished_run_has_no_card(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((finished / "config.yaml").read_text())
    with pytest.raises(UserError, match="expected the folder of a finished run"):
        Papers.read(tmp_path)
