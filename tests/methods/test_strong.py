"""Strong views of the labelled frames: rare classes, colours of other videos, patches."""

from typing import Any

import numpy as np
import pytest
import torch
from stage_tester import Build, StageTester

from suture.data.classes import IGNORE
from suture.data.sampling.augment import UNCHANGED, ViewDraw, color_statistics, render_images, render_labels
from suture.methods.stage import OptimizerSettings, Part, StageContext
from suture.methods.strong import Strong, StrongSettings, draw_donor
from suture.models.segmenter import build_segmenter

WHOLE = Part(0, range(4), range(4))
PLAIN = {"crop": (1.0, 1.0), "flip": False, "color": "none"}
BARE = {"augment": PLAIN, "strong": PLAIN, "cutmix": 0, "restyle": 0, "rare": 0}


class TestStrong(StageTester):
    def make(self, **settings: Any) -> Strong:
        return Strong("train", StrongSettings(batch=4, **settings))


def begun(context: StageContext, **settings: Any) -> Strong:
    stage = Strong("train", StrongSettings(**{"steps": 10, "batch": 4} | settings))
    stage.begin(context)
    return stage


@pytest.mark.parametrize(
    ("architecture", "encoder", "optimizer", "expected"),
    [
        ("deeplabv3", "resnet18", {}, 3e-4),
        ("segformer", "mit_b0", {}, 1e-4),
        ("segformer", "mit_b0", {"lr": 5e-5}, 5e-5),
        ("segformer", "mit_b0", {"lr": 3e-4}, 3e-4),
        ("segformer", "mit_b0", {"kind": "sgd", "lr": 0.01}, 0.01),
    ],
)
def test_a_transformer_learns_at_a_lower_rate(
    architecture: str,
    encoder: str,
    optimizer: dict[str, Any],
    expected: float,
    tiny_context: Build,
) -> None:
    settings = OptimizerSettings(**StrongSettings().optimizer.model_dump() | optimizer)
    stage = begun(tiny_context(segmenter=build_segmenter(architecture, encoder, classes=3)), optimizer=settings)
    rates = [group["lr"] for group in stage.make_optimizer().param_groups]
    assert rates == pytest.approx([expected, expected, 5 * expected])


def test_without_its_parts_it_sees_what_the_baseline_sees(tiny_context: Build) -> None:
    context = tiny_context()
    stage = begun(context, **BARE)
    images, labels = stage.render(stage.draw(WHOLE))
    numbers = [stage.views.order[place] for place in range(4)]
    truth = context.frames.collate(numbers, [ViewDraw(np.array([0, 0, 1, 1.0]), False, UNCHANGED)] * 4)
    torch.testing.assert_close(images, render_images(truth, context.size), atol=1e-5, rtol=0)
    assert torch.equal(labels, render_labels(truth, context.size))


def test_patches_come_with_their_labels(tiny_context: Build) -> None:
    context = tiny_context()
    plain, mixed = begun(context, **BARE), begun(context, **BARE | {"cutmix": 1})
    (images, labels), batch = plain.render(plain.draw(WHOLE)), mixed.draw(WHOLE)
    found = mixed.render(batch)
    for i, (left, top, right, bottom) in enumerate((batch.boxes * 32).tolist()):
        for y in range(32):
            for x in range(32):
                source = i - 1 if left <= x + 0.5 < right and top <= y + 0.5 < bottom else i
                assert found[1][i, y, x] == labels[source, y, x]
                torch.testing.assert_close(found[0][i, :, y, x], images[source, :, y, x])


@pytest.mark.parametrize("tilt", [0, 180])
def test_rare_draws_show_every_class_alike(tilt: float, tiny_context: Build) -> None:
    context = tiny_context({"a": 8, "b": 8}, every=1, round_view=True)
    rare = context.frames.places[5]
    for place, labels in context.frames.pixels._labels.items():
        labels[labels == 2] = 0
        if place == (rare[0].id, rare[1]):
            labels[17:20, 20:24] = 2  # of 16 frames, only this one shows the third class, on 12 pixels
    crops = {"crop": (0.3, 0.5), "tilt": tilt}
    stage = begun(context, batch=8, rare=1, cutmix=0, augment=crops, strong=crops)
    assert sorted(stage.views.showing) == [0, 1, 2]
    assert stage.views.showing[2] == [5]
    turns = [stage.views.turn(step, place) for step in range(40) for place in range(8)]
    classes = np.bincount([shown for _, shown in turns])
    assert classes.min() > 0.8 * classes.mean()
    assert {number for number, shown in turns if shown == 2} == {5}
    assert len({number for number, shown in turns if shown == 0}) == 16
    for step in range(4):
        labels = stage.render(stage.draw(Part(step, range(8), range(8))))[1]
        for place in range(8):
            assert (labels[place] == stage.views.turn(step, place)[1]).any()


def test_a_share_of_rare_draws_leaves_the_rest_in_order(tiny_context: Build) -> None:
    stage = begun(tiny_context(every=1), batch=8, rare=0.25)
    turns = [stage.views.turn(step, place) for step in range(40) for place in range(8)]
    ordinary = [(i, number) for i, (number, shown) in enumerate(turns) if shown is None]
    assert len(ordinary) == pytest.approx(0.75 * len(turns), rel=0.1)
    assert all(number == stage.views.order[i] for i, number in ordinary)


def test_colours_are_taken_from_another_case(tiny_context: Build) -> None:
    context = tiny_context({"a": 6, "b": 6}, round_view=True)
    plain = begun(context, **BARE)
    styled = begun(context, **BARE | {"restyle": 1, "strong_labelled": 1})
    (images, labels), batch = plain.render(plain.draw(WHOLE)), styled.draw(WHOLE)
    found = styled.render(batch)[0]
    inside = labels != IGNORE
    cases = context.frames.cases[[styled.views.turn(0, place)[0] for place in range(4)]]
    assert (cases[batch.donors] != cases).all()
    assert len(set(cases)) == 2
    torch.testing.assert_close(
        color_statistics(found, inside), color_statistics(images, inside)[batch.donors], atol=0.01, rtol=0
    )
    outside = ~inside[:, None].expand_as(images)
    torch.testing.assert_close(found[outside], images[outside], atol=1e-5, rtol=0)
    # Only strong views are restyled.
    weak = begun(context, **BARE | {"restyle": 1, "strong_labelled": 0})
    assert weak.draw(WHOLE).donors.tolist() == [0, 1, 2, 3]


def test_a_donor_is_of_another_case_where_there_is_one() -> None:
    rng = np.random.default_rng(0)
    cases = np.array([0, 0, 1, 2])
    assert {draw_donor(rng, 1, cases, 1) for _ in range(50)} == {2, 3}
    assert {draw_donor(rng, 1, np.zeros(4, int), 1) for _ in range(50)} == {0, 2, 3}
    assert draw_donor(rng, 0, np.zeros(1, int), 1) == 0
    assert draw_donor(rng, 1, cases, 0) == 1
    assert np.mean([draw_donor(rng, 1, cases, 0.5) == 1 for _ in range(400)]) == pytest.approx(0.5, abs=0.08)
