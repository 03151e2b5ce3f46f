from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from suture.core.errors import UserError
from suture.data.classes import (
    IGNORE,
    UNPAINTED,
    ClassTable,
    Raw,
    UnknownValues,
    default_colors,
    distinct_colors,
    renamed,
)
from suture.data.dataset_file import DatasetFile
from suture.data.overlay import OPACITY
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import CLASSES, SyntheticSettings, plan_videos

IDS = st.integers(0, 65535)
COLORS = st.tuples(*[st.integers(0, 255)] * 3)
LABELS = st.text(min_size=1, max_size=8)
COLOR_BLIND = np.array(
    [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ]
)
"""What linear RGB looks like to protan, deutan and tritan eyes (Machado et al. 2009)."""


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[Raw]) -> ClassTable:
    """A table of any classes, merged and ignored values included."""
    names = draw(st.lists(LABELS, min_size=1, max_size=6, unique=True))
    targets = st.integers(0, len(names) - 1) | st.just(IGNORE)
    of_values = draw(st.dictionaries(values, targets, max_size=8))
    return ClassTable(tuple(names), ((0, 0, 0),) * len(names), of_values, draw(st.none() | targets))


def slowly(table: ClassTable, value: Raw) -> int | None:
    """What one raw value means, word for word as the class table's description says."""
    if value in table.values:
        return table.values[value]
    if value in (0, (0, 0, 0), UNPAINTED):
        return table.unpainted
    return None


def check(table: ClassTable, values: list[Raw], raw: np.ndarray) -> None:
    meanings = [slowly(table, value) for value in values]
    if None in meanings:
        with pytest.raises(UnknownValues) as error:
            table.encode(raw)
        unknown = {value for value, meaning in zip(values, meanings, strict=True) if meaning is None}
        assert error.value.counts == {value: values.count(value) for value in unknown}
        assert list(error.value.counts.values()) == sorted(error.value.counts.values(), reverse=True)
    else:
        ids = table.encode(raw)
        assert ids.dtype == np.uint8
        assert ids.ravel().tolist() == meanings


@given(st.data(), st.sampled_from([np.uint8, np.uint16, np.int32]))
def test_ids(data: st.DataObject, dtype: type) -> None:
    table = data.draw(tables(IDS))
    outside = {np.uint8: IDS, np.uint16: IDS, np.int32: st.integers(-100, 2**31 - 1)}[dtype]
    known = st.sampled_from([*table.values, 0])
    values = data.draw(st.lists(known | (outside if data.draw(st.booleans()) else known), min_size=1, max_size=20))
    values = [value for value in values if value <= np.iinfo(dtype).max]
    check(table, values, np.array(values, dtype).reshape(-1, 1))


@given(st.data())
def test_colors(data: st.DataObject) -> None:
    table = data.draw(tables(COLORS))
    known = st.sampled_from([*table.values, (0, 0, 0)])
    values = data.draw(st.lists(known | (COLORS if data.draw(st.booleans()) else known), min_size=1, max_size=20))
    check(table, values, np.array(values, np.uint8).reshape(-1, 1, 3))


@given(st.data())
def test_labels(data: st.DataObject) -> None:
    """Labels of annotation tools do not disturb ids, and each means its class."""
    table = data.draw(tables(IDS | LABELS))
    assert len(set(table.label_ids.values())) == len(table.label_ids)
    assert set(table.label_ids) == {value for value in table.values if isinstance(value, str)}
    for label, raw in table.label_ids.items():
        assert table.encode(np.array([[raw]])).item() == table.values[label]
    if table.unpainted is not None:
        assert table.encode(np.array([[UNPAINTED]])).item() == table.unpainted


@given(st.data())
def test_the_dataset_file_means_what_it_says(data: st.DataObject) -> None:
    """Merging, ignoring and unpainted pixels of dataset.yaml, against a reading of the file line by line."""
    names = data.draw(st.lists(LABELS, min_size=1, max_size=6, unique=True))
    values = data.draw(st.lists(IDS, min_size=len(names), max_size=len(names), unique=True))
    groups = [f"group {number}" for number in range(2)]
    kinds = [data.draw(st.sampled_from(["own", "ignore", *groups])) for _ in names]
    lines = [
        {"name": name, "value": value}
        | ({"ignore": True} if kind == "ignore" else {"merge": kind} if kind in groups else {})
        for name, value, kind in zip(names, values, kinds, strict=True)
    ]
    unpainted = data.draw(st.sampled_from([None, "ignore", "background", *names]))
    table = DatasetFile(classes=lines, unpainted=unpainted).class_table(Path("dataset.yaml"), {}, images=["0.png"])

    def meaning(name: str) -> str | None:
        kind = kinds[names.index(name)] if name in names else "own"
        return None if kind == "ignore" or name == "ignore" else kind if kind in groups else name

    def found(raw: int) -> str | None:
        target = table.encode(np.array([[raw]])).item()
        return None if target == IGNORE else table.names[target]

    for name, value in zip(names, values, strict=True):
        assert found(value) == meaning(name)
    if unpainted is not None:
        assert found(UNPAINTED) == (None if unpainted == "ignore" else meaning(unpainted))
    used = {meaning(name) for name in names} - {None}
    assert set(table.names) <= used | {"background"}
    assert used <= set(table.names)


@given(st.data())
def test_painting_gives_back_the_colors(data: st.DataObject) -> None:
    colors = data.draw(st.lists(COLORS, min_size=1, max_size=10))
    table = ClassTable(tuple(map(str, range(len(colors)))), tuple(colors), {})
    ids = data.draw(st.lists(st.integers(0, len(colors) - 1) | st.just(IGNORE), min_size=1))
    painted = table.paint(np.array([ids], np.uint8))
    assert [tuple(pixel) for pixel in painted[0].tolist()] == [(0, 0, 0) if i == IGNORE else colors[i] for i in ids]


def test_unknown_values_in_words() -> None:
    table = ClassTable(("a",), ((0, 0, 0),), {1: 0})
    with pytest.raises(UnknownValues, match=r"holds the value 7 \(2 pixels\), pixels without any label \(1 pixels\), "):
        table.encode(np.array([[1, 7, 7, UNPAINTED]]))


@pytest.mark.parametrize(("count", "seen", "simulated"), [(7, 26, 16), (16, 26, 16), (24, 16, 12), (32, 16, 9)])
def test_the_first_colors_are_far_apart_for_any_eye(count: int, seen: float, simulated: float) -> None:
    colors = [(0, 0, 0), *default_colors([f"class {number}" for number in range(count)])]
    normal, *others = (_least_distance(colors, matrix) for matrix in (np.eye(3), *COLOR_BLIND))
    assert normal > seen
    assert min(others) > simulated


def test_generated_classes_are_told_apart_in_overlays() -> None:
    """Each class in the overlay's colour over what it looks like, for colour-blind eyes too."""
    seen: dict[int, list[np.ndarray]] = {one.value: [] for one in CLASSES}
    for video in plan_videos(SyntheticSettings(cases=3, frames=12, width=96, height=96)):
        for image, mask in render_video(video):
            for number, pixels in seen.items():
                pixels.append(image[mask == number])
    colors = [
        OPACITY * np.array(one.color) + (1 - OPACITY) * np.concatenate(seen[one.value]).mean(0) for one in CLASSES
    ]
    assert _least_distance(colors, np.eye(3)) > 16
    assert min(_least_distance(colors, matrix) for matrix in COLOR_BLIND) > 11


def _least_distance(colors: Sequence[ArrayLike], matrix: np.ndarray) -> float:
    """Between any two colours as an eye sees them, in CIELAB: two are hard to tell apart below about 10."""
    srgb = np.array(colors, np.float32) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4) @ np.float32(matrix).T
    lab = cv2.cvtColor(np.float32(linear.clip(0, 1))[None], cv2.COLOR_LRGB2LAB)[0]
    distances = np.linalg.norm(lab[:, None] - lab, axis=2)
    return float(distances[~np.eye(len(colors), dtype=bool)].min())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "a stand in the class table twice"),
        ([], "expected 1 to 253"),
        (range(254), "expected 1 to 253"),
    ],
)
def test_wrong_names_are_an_error(names: Sequence, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ClassTable(tuple(map(str, names)), ((0, 0, 0),) * len(names), {})


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ("liver fat tool", ""),
        ("liver fat tool clip", "clip is new"),
        ("liver tool", "fat is gone"),
        ("clip liver fat tool", "clip is new"),
        ("spleen fat tool clip", "liver is gone, spleen is new and clip is new"),
        ("fat liver tool", "their order is another"),
        ("a b c d e f", "liver is gone, fat is gone, tool is gone, a is new, b is new and 4 more"),
    ],
)
def test_only_what_differs_is_named(after: str, text: str) -> None:
    assert renamed(("liver", "fat", "tool"), after.split()) == text


def test_drafted_colours_are_distinct_and_none_in_use() -> None:
    names = [f"class {number}" for number in range(20)]
    assert distinct_colors(20, []) == default_colors(names)
    used = [(233, 157, 2), (0, 158, 115)]  # the first almost, and the third
    further = distinct_colors(253, used)
    assert further[:2] == [(86, 180, 233), (240, 228, 66)]
    assert further == distinct_colors(253, used)
    assert len({(0, 0, 0), *used, *further}) == 256
    assert _least_distance([(0, 0, 0), *used, *further[:45]], np.eye(3)) > 10
