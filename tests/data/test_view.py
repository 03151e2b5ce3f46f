"""The view: its forms in `dataset.yaml`, and frames that are smaller."""

import numpy as np
import pytest

from suture.core.errors import UserError
from suture.data.view import View, outline_view

ROUND = {"rect": [0, 0, 60, 70], "circle": [30, 40, 30]}


def test_painting_dims_the_outside_and_draws_the_outline() -> None:
    frame = np.full((240, 320, 3), 120, np.uint8)
    drawn = outline_view(frame, View(52, 12, 216, 216, (160.0, 120.0, 108.0)))
    assert drawn.shape == frame.shape
    assert (drawn[120, 160] == 120).all()
    assert not (drawn[2, 2] == 120).all()
    assert (drawn == (0, 255, 0)).all(axis=2).any()
    assert (frame == 120).all()


@pytest.mark.parametrize("value", [[0, 0, 320, 240], ROUND])
def test_parses_what_it_writes(value: object) -> None:
    view = View.parse(value, "dataset.yaml")
    assert View.parse(view.to_json(), "dataset.yaml") == view


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        "left",
        {"rect": [0, 0, 1, 1], "round": 1},
        [0, 0, 0, 5],
        [-1, 0, 5, 5],
        *(ROUND | {"circle": circle} for circle in ([0.5] * 3, [200, 40, 30], [30, 40, 0], [30, 40, float("nan")])),
    ],
)
def test_refuses_what_shows_nothing_or_is_no_view(value: object) -> None:
    with pytest.raises(UserError, match=r"dataset\.yaml: the view"):
        View.parse(value, "dataset.yaml")


def test_a_view_is_cut_to_its_frame() -> None:
    assert View(4, 2, 100, 100).within(20, 10) == View(4, 2, 16, 8)
    assert View.parse([0, 0, 10**7, 10**7], "dataset.yaml").within(64, 48) == View(0, 0, 64, 48)


@pytest.mark.parametrize(
    "view",
    [
        View(64, 0, 5, 5),
        View(-1, 0, 5, 5),
        View(0, 0, 400, 200, (300.0, 40.0, 90.0)),
        View(0, 0, 400, 200, (100.0, 100.0, 65.0)),
    ],
)
def test_refuses_a_view_outside_the_frame(view: View) -> None:
    with pytest.raises(UserError, match="outside its frames of 64×48"):
        view.within(64, 48)
