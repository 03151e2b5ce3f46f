"""The studio's services: labels in the files of the dataset, selections, suggestions, rounds."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import HEIGHT, LABELLED, WIDTH
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.datasets import load_dataset
from suture.data.labelling import frame_name
from suture.studio.frame_pictures import FramePictures
from suture.studio.label_journal import rounds
from suture.studio.label_store import LabelStore
from suture.studio.mask_runs import pack_runs, unpack_runs
from suture.studio.refine_selection import carry_mask, refine_selection
from suture.studio.workspace import Workspace


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_runs_are_exact(ids: np.ndarray) -> None:
    assert (unpack_runs(pack_runs(ids), (ids.shape[0], ids.shape[1])) == ids).all()


def test_saved_label_is_what_training_reads(workspace: Workspace, root: Path) -> None:
    video = workspace.dataset.videos[0]
    ids = np.full((HEIGHT, WIDTH), 2, np.uint8)
    ids[:10] = 4
    ids[-5:] = IGNORE
    assert workspace.save(video, 3, ids, "paint", 12.0) == np.count_nonzero(ids != workspace.labels.blank)
    path = root / "masks" / f"{frame_name(video.id, 3)}.png"
    with Image.open(path) as image:
        assert image.mode == "P"
        colors = np.asarray(image.convert("RGB"))
    assert tuple(colors[20, 20]) == workspace.dataset.classes.colors[2]
    again = load_dataset(root)
    assert (again.classes.encode(again.videos[0].masks[3].read(False)) == ids).all()
    assert not list((root / "masks").glob(".*")), "no temporary file stays"
    assert Workspace(root, root / "runs").mask(again.videos[0], 3, "label", None) is not None


def test_only_changed_pixels_get_a_new_value(tmp_path: Path) -> None:
    """Pixels of merged classes keep their own value."""
    (tmp_path / "videos/a").mkdir(parents=True)
    (tmp_path / "masks").mkdir()
    for index in range(3):
        Image.new("RGB", (8, 6), (index, 9, 9)).save(tmp_path / f"videos/a/{index:04}.png")
    raw = np.array([[3] * 8] * 3 + [[7] * 8] * 3, np.uint8)
    Image.fromarray(raw).save(tmp_path / "masks/a__frame_000000.png")
    classes = "[{name: tissue, value: 3}, {name: tool, value: 5}, {name: clip, value: 7, merge: tool}]"
    (tmp_path / "dataset.yaml").write_text(f"videos: videos\nmasks: masks\nclasses: {classes}\n")
    dataset = load_dataset(tmp_path)
    labels, video = LabelStore(dataset), dataset.videos[0]
    ids = labels.read(video, 0)
    assert ids is not None
    ids[0] = 1
    assert labels.write(video, 0, ids) == 8
    assert video.masks[0].read(False)[:, 0].tolist() == [5, 3, 3, 7, 7, 7]
    with pytest.raises(UserError, match="id 255"):
        labels.write(video, 1, np.full((6, 8), IGNORE, np.uint8))


def test_colour_masks_keep_their_colours(tmp_path: Path) -> None:
    (tmp_path / "videos/a").mkdir(parents=True)
    (tmp_path / "masks").mkdir()
    Image.new("RGB", (8, 6)).save(tmp_path / "videos/a/0001.png")
    classes = "[{name: tissue, value: [9, 8, 7]}, {name: tool, value: [1, 2, 3]}]"
    (tmp_path / "dataset.yaml").write_text(f"videos: videos\nmasks: masks\nclasses: {classes}\nunpainted: tissue\n")
    dataset = load_dataset(tmp_path)
    labels, video = LabelStore(dataset), dataset.videos[0]
    ids = np.zeros((6, 8), np.uint8)
    ids[0] = 1
    labels.write(video, 0, ids)
    again = load_dataset(tmp_path)
    assert (LabelStore(again).read(again.videos[0], 0) == ids).all()
    assert again.videos[0].masks[0].read(True)[0, 0].tolist() == [1, 2, 3]


def test_removed_label_is_kept_apart(workspace: Workspace, root: Path) -> None:
    video = workspace.dataset.videos[0]
    workspace.remove(video, 12)
    assert 12 not in load_dataset(root).videos[0].masks
    assert (root / ".studio/removed" / f"{frame_name(video.id, 12)}.png").exists()


@pytest.mark.parametrize("separator", [",", ";"])
def test_excluded_frame_comes_back_and_other_rows_stay(root: Path, separator: str) -> None:
    path = root / "exclude.csv"
    path.write_text("video,first,last,reason\ncase01a,4,8,smoke\n".replace(",", separator))
    before = path.read_text()
    workspace = Workspace(root, root / "runs")
    video = workspace.dataset.videos[0]
    workspace.exclude(video, 10, True)
    assert load_dataset(root)["case01a"].excluded == video.excluded == {*range(4, 9), 10}
    assert 10 not in video.usable
    with pytest.raises(UserError, match="change its row"):
        workspace.exclude(video, 6, False)
    workspace.exclude(video, 10, False)
    assert 10 in video.usable
    assert path.read_text() == before


def test_new_dataset_gets_its_classes(root: Path) -> None:
    for name in ("dataset.yaml", "exclude.csv"):
        (root / name).unlink()
    for mask in (root / "masks").iterdir():
        mask.unlink()
    workspace = Workspace(root, root / "runs")
    assert workspace.overview()["needs_classes"]
    assert workspace.labels.problem
    workspace.name_classes(["liver", " grasper ", "liver", ""])
    overview = workspace.overview()
    assert [one["name"] for one in overview["classes"]] == ["background", "liver", "grasper"]
    assert (overview["problem"], overview["blank"], overview["ground"]) == ("", 0, 0)
    workspace.save(workspace.dataset.videos[0], 1, np.full((HEIGHT, WIDTH), 2, np.uint8), "paint", 1)
    assert load_dataset(root).videos[0].with_mask == [1]
    with pytest.raises(UserError, match="has classes already"):
        workspace.name_classes(["other"])


def test_selection_snaps_to_the_edge() -> None:
    frame = np.full((120, 160, 3), 40, np.uint8)
    frame[40:80, 50:110] = (200, 60, 60)
    truth = (frame[..., 0] == 200).astype(np.uint8)
    rough = [(42, 33), (118, 36), (115, 88), (44, 86)]
    selection = refine_selection(frame, rough)
    assert np.count_nonzero(selection != truth) < 0.03 * truth.sum()
    with pytest.raises(UserError, match="three points"):
        refine_selection(frame, rough[:2])


def test_carried_label_follows_the_motion() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (12, 20, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    ids = np.zeros(picture.shape[:2], np.uint8)
    ids[32:64, 48:96] = 1
    moved, truth = np.roll(picture, 5, axis=1), np.roll(ids, 5, axis=1)
    assert np.count_nonzero(carry_mask(picture, ids, moved) != truth) < np.count_nonzero(ids != truth) / 4


def test_backward_steps_read_a_block_and_pictures_are_kept(workspace: Workspace) -> None:
    video, pictures = workspace.dataset.videos[0], FramePictures()
    read = []
    original = video.read
    video.read = lambda index: (read.append(index), original(index))[1]  # type: ignore[method-assign,func-returns-value]
    expected = {index: pictures.jpeg(video, index) for index in (20, 19, 18, 5)}
    assert read == [20, *range(20)], "the frames before are read once, forward"
    assert pictures.jpeg(video, 18) == expected[18]


def test_suggestions_fill_the_gaps_between_labels(workspace: Workspace) -> None:
    workspace.drafts.start(None, 8)
    while workspace.drafts.state["running"]:
        time.sleep(0.02)
    assert workspace.drafts.state["what"] == "8 frames suggested"
    suggested = {video.id: workspace.drafts.suggested(video) for video in workspace.dataset}
    assert sum(map(len, suggested.values())) == 8
    assert not {index for frames in suggested.values() for index in frames} & {*LABELLED}
    assert workspace.timeline(0, None)["shots"][0] == 0
    video = workspace.dataset.videos[0]
    workspace.exclude(video, suggested[video.id][0], True)
    assert workspace.drafts.suggested(video) == suggested[video.id][1:]


def test_drafts_never_count_as_labels(workspace: Workspace, root: Path) -> None:
    from suture.prediction.mask_files import write_mask

    video = workspace.dataset.videos[0]
    path = root / ".studio/drafts" / f"{frame_name(video.id, 7)}.png"
    write_mask(path, np.full((HEIGHT, WIDTH), 1, np.uint8), workspace.dataset.classes)
    assert workspace.timeline(0, None)["draft_frames"] == [7]
    assert workspace.mask(video, 7, "draft", None) is not None
    assert list(load_dataset(root).videos[0].masks) == list(LABELLED)
    assert workspace.rounds()[0]["labels"] == 0


def test_rounds_count_labels_minutes_and_edits() -> None:
    def save(how: str, index: int, pixels: int, seconds: float = 30) -> dict[str, object]:
        return {"how": how, "video": "a", "index": index, "pixels": pixels, "seconds": seconds}

    first = [save("paint", 1, 100), save("paint", 1, 20), save("paint", 2, 60), save("empty", 3, 9)]
    second = [save("draft", 4, 900), save("paint", 4, 10), save("draft", 5, 800), save("remove", 5, 0, 0)]
    one, two = rounds([*first, {"how": "train", "run": "r1"}, *second])
    assert one == {"round": 1, "run": "r1", "labels": 3, "drafts": 0, "minutes": 2.0, "pixels": 60.0}
    assert two == {"round": 2, "run": None, "labels": 1, "drafts": 1, "minutes": 1.5, "pixels": 10.0}


def test_journal_survives_a_line_that_a_crash_cut_off(workspace: Workspace) -> None:
    workspace.save(workspace.dataset.videos[0], 1, np.zeros((HEIGHT, WIDTH), np.uint8), "empty", 5)
    with workspace.journal.path.open("a") as file:
        file.write('\n{"how": "pa')
    workspace.remove(workspace.dataset.videos[0], 1)
    assert [entry["how"] for entry in workspace.journal.entries()] == ["empty", "remove"]
    assert json.loads(workspace.journal.path.read_text().splitlines()[1])["seconds"] == 5


def test_training_runs_apart_stops_and_shows_its_error(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, time; print(sys.argv[1:], 'error: out of ink', flush=True); time.sleep(60)"
    monkeypatch.setattr("suture.studio.training_jobs._SUTURE", (sys.executable, "-c", code))
    workspace.train("r1", "demo", "supervised", ["data.size=32"])
    (state,) = workspace.trainings.states()
    assert (state["name"], state["state"], state["trained"]) == ("r1", "running", False)
    log = workspace.folder / "logs/r1.log"
    while not log.read_text():
        time.sleep(0.02)
    assert "'--preset', 'demo', '--set', 'method=supervised', '--set', 'data.size=32'" in log.read_text()
    with pytest.raises(UserError, match="already"):
        workspace.train("r1", None, "supervised", [])
    workspace.trainings.stop("r1")
    while (state := workspace.trainings.states()[0])["state"] == "running":
        time.sleep(0.02)
    assert (state["state"], state["error"]) == ("stopped", "out of ink")
    assert [entry["how"] for entry in workspace.journal.entries()] == ["train"]


@pytest.mark.parametrize(
    ("name", "preset", "method"),
    [("../r", None, "stitch"), ("-o", None, "stitch"), ("r", "/etc/passwd", "stitch"), ("r", None, "stitch --force")],
)
def test_training_takes_names_only(workspace: Workspace, name: str, preset: str | None, method: str) -> None:
    with pytest.raises(UserError):
        workspace.train(name, preset, method, [])
    assert workspace.journal.entries() == workspace.trainings.states() == []
