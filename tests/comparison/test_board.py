"""Rows of seeds, and marks on rows that cannot be compared."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from by_hand import STAGES, best, scores, texts, write_plan

from suture.comparison.board import Board, boards
from suture.comparison.results import read_results
from suture.comparison.tables import cost_table, score_table, tables_of

Write = Callable[..., Path]
Read = Callable[[], Board]
TRAIN = STAGES["train"]
THREE_STAGES = {
    "pretrain": TRAIN | {"steps": 50},
    "contrast": {"steps": 70, "batch": 4, "seconds": 54.0, "labels_alone": False, "supervised_steps": 0},
    "finetune": TRAIN | {"steps": 50},
}


def reasons(board: Board) -> dict[str, str]:
    """Why each marked row cannot be compared, without digests."""
    text = {row.title: board.footnotes[row.mark].partition(". ")[2] for row in board.rows if row.mark}
    return {title: re.sub(r" \([0-9a-f]{8}\)", "", one) for title, one in text.items()}


def test_plan_gives_order_reference_and_missing_runs(tmp_path: Path, write_run: Write) -> None:
    for method in ("supervised", "pgvcl"):
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)})
    names = [f"d__every-10__{method}__seed-{seed}" for seed in (0, 1) for method in ("supervised", "pgvcl")]
    write_plan(tmp_path, names, reference="pgvcl")
    results = read_results(tmp_path)
    assert [key.name for key in results.problems] == names[2:]
    (board,) = boards(results)
    assert [row.full_title for row in board.rows] == ["supervised (1 of 2 seeds)", "pgvcl (1 of 2 seeds)"]
    assert board.groups[0].reference.title == "pgvcl"


def test_rows_that_differ_are_marked_and_never_the_best(write_run: Write, read_board: Read) -> None:
    def write(method: str, value: float, **changes: Any) -> None:
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(value)}, **changes)

    write("supervised", 0.5)
    write("equal", 0.6, stages=THREE_STAGES)  # steps of the contrast do not count
    write("longer", 0.7, stages={"train": TRAIN | {"steps": 200}})
    write("larger", 0.8, size=128, encoder="resnet101")
    write("labels", 0.9, labelled=3)
    write("precise", 0.9, precision="bf16")
    write("weights", 0.9, data={"weights": {"name": "r50.safetensors", "sha256": "0123456789abcdef"}})
    board = read_board()
    assert reasons(board) == {
        "labels": "Labels 3 instead of 2",
        "larger": "Encoder resnet101 instead of resnet50. Size 128×128 instead of 64×64",
        "longer": "Supervised steps 200 instead of 100",
        "precise": "Precision bf16 instead of 32",
        "weights": "Starting weights r50.safetensors instead of random",
    }
    for table in tables_of(board):
        assert any(note.startswith("§ Not comparable with supervised") for note in table.notes)
    assert best(score_table(board).groups[0]) == ["equal"]


def test_another_split_is_marked(write_run: Write, read_board: Read) -> None:
    def videos(**changed: dict[str, Any]) -> dict[str, Any]:
        usual = {"case": "c", "split": "train", "frames": 9, "excluded": [], "sha256": "a", "view": None}
        both: dict[str, dict[str, Any]] = {"v1": {}, "v2": {}, "v3": {"split": "test"}} | changed
        return {"videos": {name: usual | video for name, video in both.items()}}

    for method, data in {
        "supervised": videos(),
        "alike": videos(),
        "more": videos(v4={"split": None}),
        "thinned": videos(v2={"take_every": 2}),
        "turned": videos(v1={"split": "test"}, v3={"split": "train"}),
    }.items():
        write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, data=data)
    assert reasons(read_board()) == {
        "more": "Split train 2, test 1, none 1 instead of train 2, test 1",
        "thinned": "Split train 2, test 1 instead of train 2, test 1",
        "turned": "Split train 2, test 1 instead of train 2, test 1",
    }


def test_other_scored_frames_are_marked(write_run: Write, read_board: Read) -> None:
    def metrics(frames: int, tools: float | None = 0.5) -> dict[str, Any]:
        whole = scores(0.5, videos={"seq2": 0.5}, classes={"tool": tools} if tools else {}, frames=frames)
        whole["videos"]["seq2"]["frames"] = frames
        return whole

    data = {"classes": [{"name": "tool", "color": [0, 0, 0]}]}
    for method, of_method in {
        "supervised": {"test": metrics(100)},
        "fewer": {"test": metrics(40)},
        "left-out": {"test": metrics(100, None)},
        "more": {"test": metrics(100), "completion": metrics(50)},
    }.items():
        write_run(f"d__every-10__{method}__seed-0", of_method, data=data)
    assert reasons(read_board()) == {
        "fewer": "Test on 40 frames of 1 video instead of 100 frames of 1 video",
        "left-out": "Test on 100 frames of 1 video without tool instead of 100 frames of 1 video",
        "more": "Completion on 50 frames of 1 video instead of nothing",
    }


def test_seeds_that_differ_mark_their_row(write_run: Write, read_board: Read) -> None:
    for seed in range(3):
        weights = {"name": "stitch", "train": {"contrast": 0.2 if seed == 2 else 0.1}}
        write_run(f"d__every-10__stitch__seed-{seed}", {"test": scores(0.9)}, config={"method": weights})
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)})
        write_run(f"d__every-10__twice__seed-{seed}", {"test": scores(0.6)}, size=64 if seed else 128)
    board = read_board()
    assert reasons(board)["stitch"] == "In seed 2 method.train.contrast: 0.1 → 0.2"
    assert reasons(board)["twice"].startswith("Size 128×128 instead of 64×64. In seed 1 size 64×64 instead of 128")
    assert not best(score_table(board).groups[0]), "one row alone is no best"


def test_one_lucky_seed_is_not_the_best(write_run: Write, read_board: Read) -> None:
    for seed in range(3):
        write_run(f"d__every-10__supervised__seed-{seed}", {"test": scores(0.5)})
        write_run(f"d__every-10__pgvcl__seed-{seed}", {"test": scores(0.6)})
    write_run("d__every-10__lucky__seed-0", {"test": scores(0.9)})
    assert best(score_table(read_board()).groups[0]) == ["pgvcl"]


def test_a_labelling_whose_rows_are_all_marked_has_its_best(write_run: Write, read_board: Read) -> None:
    for labelling, steps in (("every-10", 100), ("every-20", 50)):
        for method, value in (("supervised", 0.5), ("pgvcl", 0.6), ("dmt", 0.7)):
            stages = {"train": TRAIN | {"steps": steps}}
            write_run(f"s__{labelling}__{method}__seed-0", {"test": scores(value)}, stages=stages)
    board = read_board()
    assert [row.mark for row in board.rows] == ["", "", "", "†", "†", "†"]
    assert [best(rows) for rows in score_table(board).groups] == [["dmt"], ["dmt"]]


def test_a_row_that_stands_in_for_the_reference_has_the_labels(
    tmp_path: Path, write_run: Write, read_board: Read
) -> None:
    names = [write_run("s__every-10__twice__seed-0", {"test": scores(0.5)}).name]
    for method, labelled in (("a", 3), ("b", 4)):
        names.append(write_run(f"s__every-20__{method}__seed-0", {"test": scores(0.5)}, labelled=labelled).name)
    write_plan(tmp_path, names, reference="twice")
    assert reasons(read_board()) == {"b": "Labels 4 instead of 3 (as a has)"}


def test_runs_under_other_conditions_are_marked_in_the_cost_alone(
    tmp_path: Path, write_run: Write, read_board: Read
) -> None:
    now: dict[str, Any] = {"runs_at_a_time": 8, "device": "an abacus with MPS", "commit": "b"}
    made: dict[str, list[dict[str, Any]]] = {
        "reference": [now | {"device": "an abacus", "commit": "a"}] * 3,
        "ours": [now | {"device": "an abacus", "commit": "a"}, now, now],
        "restarted": [now | {"starts": ({}, {})}] * 3,
        "threads": [now | {"threads": 2}] * 3,
        "packages": [now | {"packages": {"torch": "3"}}] * 3,
        "compiled": [now | {"config": {"compute": {"compile": False, "workers": 2}}}] * 3,
        "unknown": [now | {"runs_at_a_time": None}] * 3,
    }
    names = []
    for method, of_seed in made.items():
        for seed, conditions in enumerate(of_seed):
            names.append(write_run(f"d__every-10__{method}__seed-{seed}", {"test": scores(0.5)}, **conditions).name)
    write_plan(tmp_path, names, reference="reference", proposed="ours")
    board = read_board()
    because = "Times not comparable with most runs of ours because of "
    marked = {row.title: board.footnotes[row.time_mark].removeprefix(because) for row in board.rows if row.time_mark}
    assert marked == {
        "reference": "device and commit",
        "ours": "device and commit",
        "threads": "threads",
        "packages": "versions",
        "compiled": "compile and workers",
        "unknown": "runs at a time",
    }
    assert texts(cost_table(board).groups[0])[0][0] == "reference†"
    assert texts(score_table(board).groups[0])[0][0] == "reference"


def test_stored_frames_are_as_large_as_the_smallest_crop_asks(write_run: Write, read_board: Read) -> None:
    for name, crop in (("plain", 0.5), ("small", 0.3)):
        method = {"name": "m", "train": {"augment": {"crop": [crop, 1]}}}
        write_run(f"d__every-10__{name}__seed-0", {"test": scores(0.5)}, config={"method": method})
    assert reasons(read_board()) == {"small": "Store size 143 instead of 86"}
