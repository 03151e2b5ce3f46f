"""ONNX files through the predictor: files built here by hand, in which a pixel's class is a plain sum of its colours,
in every form that `suture export` writes; and one that it really wrote."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from predict_files import COLORS, NAMES, picture, write_model, write_video
from rich.console import Console

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.view import View
from suture.deployment.export import ExportFormat, to_onnx
from suture.models.model import Model
from suture.prediction.mask_files import read_written_mask
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
WEIGHTS = np.array([[0.0203, 0, -0.0101], [-0.0107, 0.0211, 0], [0, -0.0113, 0.0197]], np.float32)
VIEW = View(8, 4, 30, 32)


def scores(frame: np.ndarray) -> np.ndarray:
    """C H W: what the files compute."""
    return np.einsum("ck,hwk->chw", WEIGHTS, frame.astype(np.float32))


def write_onnx(path: Path, frame: tuple[int, int] | None, output: str, view: View | None = None, **about: Any) -> Path:
    """A file as `suture export` writes it, with a network of one 1×1 convolution."""
    h = onnx.helper
    height, width = frame or ("height", "width")
    nodes = [
        h.make_node("Cast", ["frames"], ["float"], to=onnx.TensorProto.FLOAT),
        h.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
    ]
    constants = [onnx.numpy_helper.from_array(WEIGHTS[:, :, None, None], "weights")]
    seen = "planes"
    if view:
        for name, values in {"start": (view.y, view.x), "end": (view.y + view.height, view.x + view.width)}.items():
            constants.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        constants.append(onnx.numpy_helper.from_array(np.array((2, 3), np.int64), "axes"))
        nodes.append(h.make_node("Slice", ["planes", "start", "end", "axes"], ["seen"]))
        seen = "seen"
    nodes.append(h.make_node("Conv", [seen, "weights"], ["logits"]))
    kind = onnx.TensorProto.FLOAT
    shape: list[int | str | None] = [1, 3, None, None]
    if output == "masks":
        nodes.append(h.make_node("ArgMax", ["logits"], ["ids"], axis=1, keepdims=0))
        nodes.append(h.make_node("Cast", ["ids"], ["masks" if not view else "bytes"], to=onnx.TensorProto.UINT8))
        if view and frame:
            around = (0, view.y, view.x, 0, frame[0] - view.y - view.height, frame[1] - view.x - view.width)
            constants.append(onnx.numpy_helper.from_array(np.array(around, np.int64), "around"))
            constants.append(onnx.numpy_helper.from_array(np.array(IGNORE, np.uint8), "ignore"))
            nodes.append(h.make_node("Pad", ["bytes", "around", "ignore"], ["masks"]))
        kind, shape = onnx.TensorProto.UINT8, [1, height, width]
    graph = h.make_graph(
        nodes,
        "by hand",
        [h.make_tensor_value_info("frames", onnx.TensorProto.UINT8, [1, height, width, 3])],
        [h.make_tensor_value_info(output, kind, shape)],
        constants,
    )
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    said = {
        "format": 1,
        "classes": [{"name": name, "color": color} for name, color in zip(NAMES, COLORS, strict=True)],
        "size": [40, 48],
        "multiple": 16,
        "kind": "fixed" if frame else "dynamic",
        "output": output,
        "view": view.to_json()["rect"] if view else None,
        "run": {"view": "auto", "videos_by": "folder"},
    } | about
    if said["format"]:
        h.set_model_props(proto, {"suture": json.dumps(said)})
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("output", ["masks", "logits"])
@pytest.mark.parametrize("frame", [(40, 48), None])
def test_masks_and_how_sure_they_are(tmp_path: Path, frame: tuple[int, int] | None, output: str) -> None:
    predictor = Predictor(write_onnx(tmp_path / "model.onnx", frame, output))
    assert predictor.classes.names == NAMES
    assert predictor.classes.colors == COLORS
    expected = scores(picture(3))
    np.testing.assert_array_equal(predictor(picture(3)), expected.argmax(0))
    assert predictor(np.stack([picture(3), picture(5)])).shape == (2, 40, 48)
    larger = picture(3, 96, 80)
    assert (predictor(larger) == scores(larger).argmax(0)).mean() > 0.9
    (prediction,) = predictor.predict(picture(3))
    if output == "masks":
        assert np.isnan(prediction.confidence)
    else:
        sure = np.exp(expected) / np.exp(expected).sum(0)
        assert prediction.confidence == pytest.approx(sure.max(0).mean(), abs=1e-4)
        np.testing.assert_allclose(predictor.probabilities(picture(3)), sure, atol=1e-4)
        return
    with pytest.raises(UserError, match=r"model\.onnx has no probabilities: export it with --logits"):
        predictor.probabilities(picture(3))


def test_a_file_is_opened_without_the_libraries_of_networks(tmp_path: Path) -> None:
    """Which take several times as long to load as ONNX Runtime."""
    file = write_onnx(tmp_path / "model.onnx", (40, 48), "masks")
    words = "import sys, numpy, suture; suture.Predictor(sys.argv[1])(numpy.zeros((40, 48, 3), numpy.uint8)); "
    words += "print(*{'timm', 'torchvision', 'segmentation_models_pytorch', 'lightning'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", words, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_ids_of_a_view_lie_in_its_frame(tmp_path: Path) -> None:
    predictor = Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks"))
    frame, expected = np.zeros((60, 70, 3), np.uint8), np.full((60, 70), IGNORE, np.uint8)
    frame[8:48, 5:53], expected[8:48, 5:53] = picture(3), scores(picture(3)).argmax(0)
    for circle in (None, (29.0, 28.0, 16.0)):
        view = View(5, 8, 48, 40, circle)
        np.testing.assert_array_equal(predictor(frame, view), np.where(view.mask(70, 60), expected, IGNORE))


def test_a_view_inside_the_file(tmp_path: Path) -> None:
    found = Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks", VIEW))(picture(3))
    expected = np.where(VIEW.mask(48, 40), scores(picture(3)).argmax(0), IGNORE)
    np.testing.assert_array_equal(found, expected)


def test_a_view_inside_the_file_is_the_only_one(tmp_path: Path) -> None:
    """A border that is found in the frames must not be cut off before the file cuts out what it was told."""
    model = write_onnx(tmp_path / "model.onnx", (40, 48), "masks", VIEW)
    frame = np.where(VIEW.mask(48, 40)[..., None], picture(3), 0).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "frame.png"), frame[..., ::-1])
    quiet = Console(quiet=True)
    predict(Predictor(model), [tmp_path / "frame.png"], tmp_path / "out", console=quiet)
    mask = read_written_mask(tmp_path / "out/frame/masks/frame.png")
    np.testing.assert_array_equal(mask, Predictor(model)(frame))
    with pytest.raises(UserError, match=r"model.onnx crops its view itself: give it whole frames"):
        predict(
            Predictor(model), [tmp_path / "frame.png"], tmp_path / "other", PredictionSettings(view=VIEW), console=quiet
        )
    assert Predictor(model)(cv2.resize(frame, (96, 80))).shape == (80, 96), "the same frames, resized"
    with pytest.raises(UserError, match="whole frames of the shape 48×40 and no view"):
        Predictor(model)(np.zeros((44, 48, 3), np.uint8))


def test_averages(tmp_path: Path) -> None:
    fixed = write_onnx(tmp_path / "fixed.onnx", (40, 48), "masks")
    dynamic = write_onnx(tmp_path / "dynamic.onnx", None, "logits")
    frame = picture(2, 100, 90)
    expected = scores(frame).argmax(0)
    for options in ({"flip": True, "window": True}, {"scales": (1, 1.5)}):
        assert (Predictor(dynamic, **options)(frame) == expected).mean() > 0.9
        with pytest.raises(UserError, match="export it with --dynamic and --logits"):
            Predictor(fixed, **options)


def test_a_file_knows_how_videos_were_told_apart(tmp_path: Path) -> None:
    run = {"view": "auto", "videos_by": "name"}
    assert Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks", run=run)).network.videos_by == "name"


@pytest.mark.parametrize(
    "changes",
    [{"classes": []}, {"classes": [{"name": "a", "color": [1, 2]}]}, {"size": "x"}, {"multiple": 0}, {"run": [1]}],
)
def test_notes_of_a_wrong_shape_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.onnx is not as Suture wrote it"):
        Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks", **changes))


def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no ONNX file of `suture export`"):
        Predictor(write_onnx(tmp_path / "other.onnx", (40, 48), "masks", format=None))
    with pytest.raises(UserError, match="update Suture"):
        Predictor(write_onnx(tmp_path / "newer.onnx", (40, 48), "masks", format=99))
    with pytest.raises(UserError, match=r"cannot run on cuda|'cuda' is not available"):
        Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks"), "cuda")


def test_a_video_through_a_file_that_gives_decisions_only(tmp_path: Path) -> None:
    predictor = Predictor(write_onnx(tmp_path / "model.onnx", (40, 48), "masks"))
    video = write_video(tmp_path / "case.mp4", 4)
    quiet = Console(file=io.StringIO())
    assert predict(predictor, [video], tmp_path / "out", console=quiet).problems == []
    first = (tmp_path / "out/case/frames.csv").read_text().splitlines()[1].split(",")
    assert first[3:5] == ["", ""]  # it does not say how sure it is
    with pytest.raises(UserError, match="export it with --logits"):
        predict(predictor, [video], tmp_path / "smooth", PredictionSettings(smooth=0.5), console=quiet)


def test_a_file_that_was_really_exported(tmp_path: Path) -> None:
    folder = write_model(tmp_path, (36, 44))
    (tmp_path / "model.onnx").write_bytes(to_onnx(Model.load(folder), ExportFormat((40, 48))))
    frames = np.stack([picture(index) for index in range(3)])
    assert (Predictor(tmp_path / "model.onnx")(frames) == Predictor(folder, "cpu")(frames)).mean() > 0.99
