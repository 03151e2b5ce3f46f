"""What `suture predict` writes: masks, overlay and table of videos and images, with the original's size and timing."""

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from PIL import Image
from predict_files import COLORS, NAMES, picture, write_images, write_model, write_video
from rich.console import Console

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.data.classes import IGNORE
from suture.data.dataset import Frame, Video, training_view
from suture.data.images import read_image
from suture.data.overlay import Overlay, OverlayStyle, draw_legend
from suture.data.video import VideoFile
from suture.data.view import View
from suture.prediction.predict import PredictionSummary, predict
from suture.prediction.prediction_settings import PredictionSettings, parse_view
from suture.prediction.predictor import Predictor
from suture.prediction.video_writer import video_frame

STAMPS = [0, 40, 130, 150, 420, 430, 900, 1000, 1010, 1500, 1577, 2000]


def run(predictor: Predictor, inputs: Any, out: Path, **settings: Any) -> PredictionSummary:
    return predict(predictor, inputs, out, PredictionSettings(**settings), console=Console(file=io.StringIO()))


def read_mask(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.mode == "P"
        assert image.getpalette()[:9] == [value for color in COLORS for value in color]  # type: ignore[index]
        return np.asarray(image)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".avi"])
def test_a_video_gives_masks_overlay_and_table(cpu: Predictor, tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"case{suffix}", codec="mpeg4" if suffix == ".avi" else "libx264")
    video = VideoFile(path)
    assert run(cpu, [path], tmp_path / "out") == PredictionSummary(1, 12, 0, [])
    out = tmp_path / "out/case"
    assert sorted(file.name for file in out.iterdir()) == ["frames.csv", "masks", "overlay.mp4", "prediction.json"]
    table = rows(out / "frames.csv")
    for index, frame in enumerate(video.frames()):
        mask = read_mask(out / f"masks/case__frame_{index:06d}.png")
        np.testing.assert_array_equal(mask, cpu(frame))
        row = table[index]
        assert (row["frame"], row["problem"], row["name"]) == (str(index), "", f"case__frame_{index:06d}")
        assert float(row["time"]) == pytest.approx(video.times[index], abs=1e-5)
        for number, name in enumerate(NAMES):
            assert float(row[f"area {name}"]) == pytest.approx((mask == number).mean(), abs=1e-5)
        assert 0 < float(row["confidence"]) <= 1
        assert 0 <= float(row["entropy"]) <= 1
        assert (row["flow_agreement"] == "") == (index == 0)
    overlay = VideoFile(out / "overlay.mp4")
    assert overlay.size == (48, 40)
    np.testing.assert_allclose(overlay.times, video.times, atol=1e-4)
    record = json.loads((out / "prediction.json").read_text())
    assert record["frames"] == record["predicted"] == 12
    assert [one["name"] for one in record["classes"]] == list(NAMES)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_variable_frame_rate_is_kept(cpu: Predictor, tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"case{suffix}", stamps=STAMPS)
    run(cpu, [path], tmp_path / "out", masks="video")
    for name in ("overlay.mp4", "masks.mkv"):
        found = VideoFile(tmp_path / "out/case" / name)
        np.testing.assert_allclose(found.times, np.array(STAMPS) / 1000, atol=6e-4)
    times = [float(row["time"]) for row in rows(tmp_path / "out/case/frames.csv")]
    np.testing.assert_allclose(times, np.array(STAMPS) / 1000, atol=1e-6)


@pytest.mark.parametrize("aspect", [Fraction(64, 45), None])
def test_the_overlay_of_anamorphic_video_is_as_wide(cpu: Predictor, tmp_path: Path, aspect: Fraction | None) -> None:
    path = write_video(tmp_path / "case.mp4", 3, aspect=aspect)
    run(cpu, [path], tmp_path / "out")
    overlay = VideoFile(tmp_path / "out/case/overlay.mp4")
    assert overlay.pixel_aspect == (aspect or 1)
    assert overlay.size[0] == 48


@pytest.mark.parametrize("size", [(48, 40), (130, 66)])
def test_masks_as_one_video_are_lossless(cpu: Predictor, tmp_path: Path, size: tuple[int, int]) -> None:
    path = write_video(tmp_path / "case.mp4", size=size)
    run(cpu, [path], tmp_path / "out", masks="video", overlay=False, table="none")
    assert sorted(file.name for file in (tmp_path / "out/case").iterdir()) == ["masks.mkv", "prediction.json"]
    for frame, mask in zip(VideoFile(path).frames(), VideoFile(tmp_path / "out/case/masks.mkv").frames(), strict=True):
        np.testing.assert_array_equal(mask[..., 0], cpu(frame))


@pytest.mark.parametrize("size", [(1, 1), (4097, 3), (33, 47), (2, 90)])
def test_odd_sizes(cpu: Predictor, tmp_path: Path, size: tuple[int, int]) -> None:
    """No H.264 video has such a size, but images and FFV1 do: masks stay exact, the overlay grows by a pixel."""
    width, height = size
    path = tmp_path / "odd.mkv"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "bgr0"
        for index in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index, *size), format="rgb24")))
        container.mux(stream.encode(None))
    run(cpu, [path], tmp_path / "out", masks="video")
    assert VideoFile(tmp_path / "out/odd/masks.mkv").size == size
    overlay = VideoFile(tmp_path / "out/odd/overlay.mp4")
    assert overlay.size == (width + width % 2, height + height % 2)
    assert len(overlay) == 3
    images = write_images(tmp_path / "images", 2, size)
    run(cpu, [images], tmp_path / "out")
    assert read_mask(tmp_path / "out/images/masks/frame1.png").shape == (height, width)
    assert read_image(tmp_path / "out/images/overlay/frame1.jpg").shape == (height, width, 3)


def test_images_of_every_kind_and_size(cpu: Predictor, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    frame = picture(0)
    alpha = np.dstack([frame[..., ::-1], np.full(frame.shape[:2], 7, np.uint8)])
    gray = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    kinds = {
        "alpha.png": alpha,
        "colour.png": frame[..., ::-1],
        "deep.png": frame[..., ::-1].astype(np.uint16) * 257,
        "grey.png": gray,
        "grey16.tif": gray.astype(np.uint16) * 257,
        "large.jpg": picture(1, 90, 70)[..., ::-1],
    }
    for name, pixels in kinds.items():
        cv2.imwrite(str(folder / name), pixels)
    assert run(cpu, [folder], tmp_path / "out").problems == []
    expected = cpu(frame)
    for name in ("alpha", "colour", "deep"):
        np.testing.assert_array_equal(read_mask(tmp_path / f"out/frames/masks/{name}.png"), expected)
    spread = cpu(cv2.cvtColor(gray, cv2.COLOR_GRAY2RGB))
    for name in ("grey", "grey16"):
        np.testing.assert_array_equal(read_mask(tmp_path / f"out/frames/masks/{name}.png"), spread)
    assert read_mask(tmp_path / "out/frames/masks/large.png").shape == (70, 90)
    table = rows(tmp_path / "out/frames/frames.csv")
    assert sorted(row["name"] for row in table) == [Path(name).stem for name in kinds]
    assert all(row["time"] == "" for row in table)
    assert table[-1]["flow_agreement"] == ""  # of another size than the one before


def test_a_parquet_table_says_the_same(cpu: Predictor, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = write_images(tmp_path / "frames")
    for table in ("csv", "parquet"):
        run(cpu, [folder], tmp_path / table, table=table, overlay=False)
    found = parquet.read_table(tmp_path / "parquet/frames/frames.parquet").to_pylist()
    plain = rows(tmp_path / "csv/frames/frames.csv")
    assert len(found) == len(plain) == 5
    assert list(found[0]) == list(plain[0])
    for one, other in zip(found, plain, strict=True):
        assert str(one["frame"]) == other["frame"]
        assert one["time"] is None
        assert float(other["confidence"]) == pytest.approx(one["confidence"], rel=1e-4)


def test_the_view_is_found_or_stated(cpu: Predictor, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for index in range(4):
        frame = np.zeros((80, 100, 3), np.uint8)
        frame[10:70, 20:90] = picture(index, 70, 60)
        cv2.imwrite(str(folder / f"{index}.png"), frame[..., ::-1])
    views = {"auto": View(20, 10, 70, 60), "none": None, "30,20,40,50": View(30, 20, 40, 50)}
    for said, view in views.items():
        run(cpu, [folder], tmp_path / said, view=parse_view(said), overlay=False)
        expected = cpu(read_image(folder / "2.png"), view)
        np.testing.assert_array_equal(read_mask(tmp_path / said / "frames/masks/2.png"), expected)
        assert (expected == IGNORE).any() == (view is not None)
        area = sum(float(rows(tmp_path / said / "frames/frames.csv")[2][f"area {name}"]) for name in NAMES)
        assert area == pytest.approx(1, abs=1e-4)
    with pytest.raises(
        UserError, match=r"frames: none of its 4 frames can be used; the first: 0: the view 200,0,10,10 rea"
    ):
        run(cpu, [folder], tmp_path / "outside", view=View(200, 0, 10, 10))
    video = write_video(tmp_path / "case.mp4", 3)
    run(cpu, [video], tmp_path / "all of it", view=parse_view("8,0,40,40"))
    sentence = r"case\.mp4: the view 8,0,41,40 reaches out of 48×40 pixels, expected x,y,w,h that lie within\.$"
    with pytest.raises(UserError, match=sentence):  # it would be cut without a word
        run(cpu, [video], tmp_path / "outside", view=parse_view("8,0,41,40"))
    assert not (tmp_path / "outside").exists()
    with pytest.raises(UserError, match="--view is somewhere, expected trained, auto, none or x,y,w,h"):
        parse_view("somewhere")


def test_the_view_is_that_of_the_training_where_one_was_stated(tmp_path: Path) -> None:
    for name, shift in (("same", 0), ("larger", 8)):
        (tmp_path / name).mkdir()
        for index in range(3):
            frame = np.zeros((80 + shift, 100, 3), np.uint8)
            frame[10:70, 20:90] = picture(index, 70, 60)
            cv2.imwrite(str(tmp_path / name / f"{index}.png"), frame[..., ::-1])

    def used(model: Path, name: str) -> tuple[Any, str]:
        lines = io.StringIO()
        out = tmp_path / "out" / model.name
        predict(
            Predictor(model), [tmp_path / name], out, PredictionSettings(overlay=False), console=Console(file=lines)
        )
        return read_json(out / name / "prediction.json")["view"], lines.getvalue().partition("view: ")[2].strip()

    same = [
        Video(name, name, [Frame(0, 0, tmp_path / "same/0.png")], view_setting=View(30, 20, 40, 50)) for name in "ab"
    ]
    stated = write_model(tmp_path / "stated", view=training_view(same))
    assert used(stated, "same") == (
        {"rect": [30, 20, 40, 50]},
        "30,20,40,50, as in training",
    )
    assert used(stated, "larger") == ({"rect": [20, 10, 70, 60]}, "20,10,70,60, found")
    whole = write_model(tmp_path / "whole", view=training_view([replace(video, view_setting=None) for video in same]))
    assert used(whole, "larger") == (None, "the whole frame, as in training")
    for mixed in (
        [*same, replace(same[0], view_setting=None)],
        [replace(video, view_setting="auto") for video in same],
    ):
        assert training_view(mixed) == "auto"


def test_a_part_of_a_video(cpu: Predictor, tmp_path: Path) -> None:
    path = write_video(tmp_path / "case.mp4", 20)
    style = OverlayStyle(opacity=0.0, outline=0, side_by_side=True)
    assert run(cpu, [path], tmp_path / "out", start=0.5, end=1.5, every=3, style=style).frames == 4
    table = rows(tmp_path / "out/case/frames.csv")
    assert [(row["frame"], row["time"]) for row in table] == [("5", "0.5"), ("8", "0.8"), ("11", "1.1"), ("14", "1.4")]
    assert {file.stem[-2:] for file in (tmp_path / "out/case/masks").iterdir()} == {"05", "08", "11", "14"}
    overlay = VideoFile(tmp_path / "out/case/overlay.mp4")
    np.testing.assert_allclose(overlay.times, [0, 0.3, 0.6, 0.9], atol=1e-4)
    assert overlay.size == (96, 40)
    shown = overlay.read(1).astype(int)
    assert np.abs(shown[:, :48] - shown[:, 48:]).mean() < 5
    with pytest.raises(UserError, match="has no frame between --start 9 and --end the end"):
        run(cpu, [path], tmp_path / "late", start=9)
    for wrong in ({"every": 0}, {"start": 2, "end": 1}, {"style": OverlayStyle(opacity=2)}):
        with pytest.raises(UserError, match="Expected --"):
            PredictionSettings(**wrong)  # type: ignore[arg-type]


def test_an_overlay_shows_name_and_time(cpu: Predictor, tmp_path: Path) -> None:
    path = write_video(tmp_path / "case.mp4", 3, (200, 120))
    run(cpu, [path], tmp_path / "out")
    (frame, *_), shown = VideoFile(path).frames(), VideoFile(tmp_path / "out/case/overlay.mp4").read(0)
    painted = Overlay(cpu.classes, 200, 120)(frame, cpu(frame))
    difference = np.abs(shown[: len(painted)].astype(int) - painted).mean(2)
    assert difference[:14, :60].mean() > 30 > 8 > difference[20:].mean()


def test_smoothing_flickers_less(cpu: Predictor, tmp_path: Path) -> None:
    """The same picture with noise, over and over: all change is flicker."""
    folder = tmp_path / "frames"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for index in range(8):
        noisy = np.clip(picture(0).astype(int) + generator.normal(0, 3, (40, 48, 3)), 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{index}.png"), noisy)
    found = {}
    for smooth in (0.0, 0.8):
        run(cpu, [folder], tmp_path / str(smooth), smooth=smooth, overlay=False)
        table = rows(tmp_path / str(smooth) / "frames/frames.csv")
        found[smooth] = np.mean([float(row["flow_agreement"]) for row in table[1:]])
    assert found[0.8] > found[0.0]
    with pytest.raises(UserError, match="smooth is 1"):
        run(cpu, [folder], tmp_path / "one", smooth=1.0)


def test_the_overlay_tints_what_is_painted_and_leaves_the_rest(cpu: Predictor) -> None:
    classes = cpu.classes
    frame = np.full((100, 200, 3), 100, np.uint8)
    mask = np.zeros((100, 200), np.uint8)
    mask[:, 100:] = 1
    mask[:10] = IGNORE
    drawn = Overlay(classes, 200, 100)(frame, mask)
    assert drawn.shape[0] > 100
    assert drawn.shape[0] % 4 == 0
    assert drawn.shape[1] == 200
    assert (drawn[:9] == 100).all()
    for column, color in ((50, COLORS[0]), (150, COLORS[1])):
        np.testing.assert_allclose(drawn[50, column], 0.6 * 100 + 0.4 * np.array(color), atol=1)
    np.testing.assert_array_equal(drawn[50, 99], COLORS[0])
    np.testing.assert_array_equal(drawn[50, 100], COLORS[1])
    legend = draw_legend(classes, 200, 100)
    for color in COLORS:
        assert (legend == color).all(axis=2).sum() > 20
    assert Overlay(classes, 40, 40)(frame[:40, :40], mask[:40, :40]).shape == (40, 40, 3)


@pytest.mark.parametrize("height", [22, 24])
def test_a_frame_of_a_video_is_whole_copied_or_not(height: int) -> None:
    planes = np.random.default_rng(0).integers(0, 256, (height * 3 // 2, 20), np.uint8)
    frame = video_frame(planes, "yuv420p")
    np.testing.assert_array_equal(frame.to_ndarray(), planes)
    assert np.shares_memory(np.frombuffer(frame.planes[0], np.uint8), planes) == (height % 4 == 0)


def test_overlay_video_has_the_right_colours(cpu: Predictor, tmp_path: Path) -> None:
    path = write_video(tmp_path / "case.mp4", size=(200, 120), frames=4)
    run(cpu, [path], tmp_path / "out")
    overlay = VideoFile(tmp_path / "out/case/overlay.mp4")
    for index, frame in enumerate(VideoFile(path).frames()):
        expected = Overlay(cpu.classes, 200, 120)(frame, cpu(frame))
        shown = overlay.read(index)[: expected.shape[0]]
        below = slice(16, None)  # the name and the time stand above
        assert np.abs(shown.astype(int) - expected)[below].mean() < 6
