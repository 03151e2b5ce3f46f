"""Which frames are labelled: the paper's counts, and what must hold for every video and budget."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from suture.core.errors import UserError
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.labelling import (
    Labelling,
    LabellingSettings,
    all_masks,
    by_budget,
    by_ratio,
    choose,
    equidistant,
    frame_name,
    from_list,
    interval,
    read_lines,
)

CADIS_TRAIN = (1, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15, 17, 18, 19, 20, 21, 23, 24, 25)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1).filter(
    lambda name: not name.startswith("#") and "/" not in name and "__frame_" not in name
)
labellings = st.dictionaries(names, st.lists(st.integers(0, 10**6)), max_size=5).map(Labelling)
lengths = st.dictionaries(names, st.integers(1, 300), min_size=1, max_size=5)


def frames_of(text: str) -> list[tuple[str, int]]:
    return [(name, index) for _, name, index in read_lines(text, "list.txt")]


def video(name: str, length: int, masks: range | list[int], split: str = "train", excluded: range = range(0)) -> Video:
    mask = MaskFile(Path("mask.png"))
    frames = [Frame(i, i, image=Path("frame.png"), mask=mask if i in masks else None) for i in range(length)]
    return Video(name, name, frames, split, excluded=frozenset(excluded))  # type: ignore[arg-type]


def dataset(*videos: Video) -> Dataset:
    return Dataset("mine", Path("mine"), ClassTable(("tissue",), ((0, 0, 0),), {0: 0}), list(videos))


@pytest.mark.parametrize(("every", "count", "share"), [(20, 120, 5.4), (10, 225, 10.1)])
def test_the_papers_counts_on_endovis18(every: int, count: int, share: float) -> None:
    labelling = equidistant({f"seq_{n}": 149 for n in range(1, 17) if n != 8}, every)
    assert (labelling.count, round(100 * count / (15 * 149), 1)) == (count, share)


@pytest.mark.parametrize(("every", "count"), [(60, 67), (50, 80)])
def test_the_papers_counts_on_cadis(every: int, count: int, shared: Path) -> None:
    with (shared / "data/cadis/frames.csv").open() as file:
        frames = Counter(int(row["video"]) for row in csv.DictReader(file))
    lengths = {f"Video{n}": frames[n] for n in CADIS_TRAIN}
    assert sum(lengths.values()) == 3550
    assert equidistant(lengths, every).count == count


@given(lengths, st.integers(1, 400))
def test_equidistant_is_a_range_per_video(lengths: dict[str, int], every: int) -> None:
    labelling = equidistant(lengths, every)
    for name, length in lengths.items():
        assert labelling[name] == tuple(range(0, length, every))


@given(st.floats(0.001, 1))
@example(0.4)
@example(0.7)
def test_no_other_interval_is_clearly_nearer_to_the_ratio(ratio: float) -> None:
    share = 1 / interval(ratio)
    assert all(abs(share - ratio) <= abs(1 / every - ratio) for every in range(1, 1200))
    assert interval(1.0) == 1
    assert by_ratio({"a": range(1000)}, ratio).count == -(-1000 // interval(ratio))


@pytest.mark.parametrize("ratio", [0, -0.1, 1.5, float("nan")])
def test_a_ratio_that_is_none(ratio: float) -> None:
    with pytest.raises(UserError, match="ratio"):
        interval(ratio)


@given(labellings)
def test_text_gives_the_labelling_back(labelling: Labelling) -> None:
    assert frames_of(labelling.to_text()) == list(labelling)


@given(names, st.integers(0, 10**8))
def test_a_frames_name_gives_its_video_and_index_back(name: str, index: int) -> None:
    assert frames_of(frame_name(name, index)) == [(name, index)]
    assert frames_of(f"some/folder/{frame_name(name, index)}.png") == [(name, index)]


def test_lists_have_comments_blanks_and_both_forms() -> None:
    text = "# chosen by hand\n\ncase01 20\ncase 2\t7  # blurred\ncase01__frame_000004.png\nmasks/case01__frame_000005\n"
    assert frames_of(text) == [("case01", 20), ("case 2", 7), ("case01", 4), ("case01", 5)]
    assert frames_of("a__frame_b__frame_7.PNG") == [("a__frame_b", 7)]


NAMES = ["case01_frame_000120.png", "__frame_000120.png"]


@pytest.mark.parametrize("line", [*NAMES, "case01", "case01 x", "case01 -3", "120", "case01 1.5", "a " + "9" * 5000])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(UserError, match=r"list\.txt, line 2: found"):
        frames_of(f"case01 20\n{line}\n")


@given(
    st.dictionaries(names, st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(1, 300),
)
def test_a_budget_is_kept_and_reaches_every_shot_it_can(sizes: dict[str, list[int]], budget: int) -> None:
    shots = {
        name: [range(start, start + size) for start, size in zip(np.cumsum([0, *of]).tolist(), of, strict=False)]
        for name, of in sizes.items()
    }
    labelling = by_budget(shots, budget)
    listed = [(name, shot) for name, of in shots.items() for shot in of]
    held = [len(set(shot) & set(labelling[name])) for name, shot in listed]
    assert labelling.count == sum(held) == min(budget, sum(len(shot) for _, shot in listed))
    if budget >= len(listed):
        assert min(held) >= 1
    if budget >= len(shots):
        assert all(labelling[name] for name in shots)
    if budget <= len(listed):
        assert max(held) == 1
    for (_, shot), share in zip(
        listed, held, strict=True
    ):  # in proportion: nobody could claim the last frame of another
        for (_, other), least in zip(listed, held, strict=True):
            if share > 1 and least < len(other):
                assert len(shot) / (2 * share - 1) >= len(other) / (2 * least + 1) - 1e-9


def test_a_single_frame_of_a_shot_is_its_middle() -> None:
    assert by_budget({"a": [range(10), range(10, 11)]}, 2)["a"] == (5, 10)


def test_only_usable_frames_of_training_videos_with_a_mask() -> None:
    data = dataset(
        video("a", 100, range(100), excluded=range(30)),
        video("b", 50, [0, 7, 20]),
        video("c", 50, range(50), split="test"),
        video("d", 50, []),
    )
    assert choose(data, LabellingSettings(every=20)) == Labelling({"a": (40, 60, 80), "b": (0, 20)})
    everything = choose(data, LabellingSettings())
    assert everything == all_masks(data) == Labelling({"a": range(30, 100), "b": (0, 7, 20)})
    assert everything.ratio(data) == pytest.approx(73 / 170)
    assert choose(data, LabellingSettings(ratio=0.05)) == choose(data, LabellingSettings(every=20))


def test_a_ratio_is_of_the_frames_that_take_part() -> None:
    """Of thinned video too; excluded frames keep their places, so that the distances stay the same around them."""
    thinned = replace(video("a", 1000, range(0, 1000, 25)), take_every=25)
    assert choose(dataset(thinned), LabellingSettings(ratio=0.1))["a"] == (0, 250, 500, 750)
    between = replace(video("a", 100, range(0, 100, 5)), take_every=10)  # each second mask brings a frame in
    chosen = choose(dataset(between), LabellingSettings(ratio=0.25))
    assert chosen["a"] == (0, 20, 40, 60, 80)
    assert chosen.ratio(dataset(between)) == 0.25
    holed = replace(video("a", 100, range(0, 100, 5), excluded=range(20, 35)), take_every=10)
    assert choose(dataset(holed), LabellingSettings(ratio=0.25))["a"] == (0, 40, 60, 80)


def test_a_list_names_videos_by_the_end_of_their_path_as_predictions_do(tmp_path: Path) -> None:
    data = dataset(*(video(name, 10, []) for name in ("op1_part 1", "op1_part 2", "op2_part 2", "op3")))
    file = tmp_path / "list.txt"
    file.write_text("part 1__frame_000004\npart 1 2\nop1_part 1 3\nop3 1\n")
    assert from_list(file, data) == Labelling({"op1_part 1": (2, 3, 4), "op3": (1,)})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("part 2 4", "the video 'part 2' fits 2 videos, expected one of op1_part 2 and op2_part 2"),
        ("x 1", "the video 'x' fits 0 videos"),
        ("op3 10", "found frame 10 .* last frame is 9"),
    ],
)
def test_a_list_is_checked_against_the_dataset(tmp_path: Path, line: str, message: str) -> None:
    data = dataset(*(video(name, 10, []) for name in ("op1_part 2", "op2_part 2", "op3")))
    (tmp_path / "list.txt").write_text(f"op3 3\n{line}\n")
    with pytest.raises(UserError, match=rf"list\.txt, line 2: {message}"):
        from_list(tmp_path / "list.txt", data)
    with pytest.raises(UserError, match=r"missing\.txt cannot be read"):
        from_list(tmp_path / "missing.txt", data)


def test_a_list_may_name_frames_of_other_splits(tmp_path: Path) -> None:
    data = dataset(video("a", 10, range(10)), video("t", 10, range(10), split="test"))
    (tmp_path / "list.txt").write_text("a 3\na__frame_000001.png\nt 4\n")
    assert from_list(tmp_path / "list.txt", data) == Labelling({"a": (1, 3), "t": (4,)})
    assert choose(data, LabellingSettings(list=tmp_path / "list.txt")) == Labelling({"a": (1, 3)})


def test_nothing_labelled_is_an_error() -> None:
    with pytest.raises(UserError, match="chooses none of the 1 training frame with a mask"):
        choose(dataset(video("a", 100, [3])), LabellingSettings(every=20))
    with pytest.raises(UserError, match="no mask"):
        choose(dataset(video("a", 100, [])), LabellingSettings())
    with pytest.raises(UserError, match="no training videos"):
        choose(dataset(video("a", 100, [3], split="test")), LabellingSettings())


def test_settings_take_one_way_only() -> None:
    with pytest.raises(ValidationError, match="every and ratio are given"):
        LabellingSettings(every=3, ratio=0.1)
    with pytest.raises(ValidationError):
        LabellingSettings(evry=3)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        LabellingSettings(every=0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"videos": 2}, {"b": (6,), "d": (4,)}),
        ({"videos": 1, "every": 4}, {"c": (0, 4)}),
        ({"videos": 4, "ratio": 0.5}, dict.fromkeys("acd", (0, 2, 4, 6)) | {"b": (4, 6)}),
    ],
)
def test_some_videos_only(settings: dict[str, float], expected: dict[str, tuple[int, ...]]) -> None:
    masks = {"a": range(8), "b": [4, 6], "none": [], "c": range(8), "d": range(8)}
    data = dataset(*(video(name, 8, known) for name, known in masks.items()), video("test", 8, range(8), "test"))
    assert choose(data, LabellingSettings(**settings)).frames == expected


def test_more_videos_than_there_are() -> None:
    with pytest.raises(UserError, match="1 training video"):
        choose(dataset(video("a", 8, range(8))), LabellingSettings(videos=2))
