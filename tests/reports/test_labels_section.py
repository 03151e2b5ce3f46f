"""Frames to label next, and labels that may be wrong."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import Runs

from suture.data.labelling import from_list
from suture.reports.labels_section import doubtful_pictures, least_confident, suggest_labels
from suture.reports.report_context import ReportContext

Open = Callable[..., ReportContext]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 8))
def test_suggestions_are_apart_and_least_confident(values: list[float], count: int) -> None:
    confidence = {("a", index): value for index, value in enumerate(values)}
    chosen = least_confident(confidence, {"a": len(values)}, count)
    assert 1 <= len(chosen) <= count
    assert min(values) in chosen.values()
    assert list(chosen.values()) == sorted(chosen.values())
    indices = sorted(index for _, index in chosen)
    assert all(b - a > len(values) // 5 for a, b in pairwise(indices))


def test_unlabelled_frames_are_suggested_as_a_list_for_select(runs: Runs, tmp_path: Path, context_of: Open) -> None:
    context = context_of(runs.supervised)
    suggestions = suggest_labels(context, {})
    assert suggestions is not None
    assert context.dataset is not None
    assert not any(index in context.first.labelled[name] for name, index in suggestions.confidence)
    (tmp_path / "next.txt").write_text("\n".join(suggestions.lines))
    assert {*from_list(tmp_path / "next.txt", context.dataset)} == {*suggestions.confidence}


def test_label_that_differs_from_the_prediction_is_shown_first(runs: Runs, context_of: Open) -> None:
    gallery = doubtful_pictures(context_of(runs.supervised))
    assert gallery is not None
    truth, prediction = gallery.panels
    ious = [prediction.scores[key] for key in gallery.chosen]
    assert all(index % 6 == 0 for _, index in gallery.chosen), "labelled frames"
    assert truth.masks.keys() == gallery.chosen.keys()
    assert np.all(np.diff(np.array(ious, float)) >= 0)
