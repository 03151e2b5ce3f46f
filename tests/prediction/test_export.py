"""Exported files give the masks of PyTorch, by standard operators, and say what they are."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from suture.cli import app
from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.datasets import load_dataset
from suture.data.view import View
from suture.deployment import export
from suture.deployment.export import (
    MIN_AGREEMENT,
    OPSET,
    DeployedSegmenter,
    Exported,
    ExportFormat,
    export_run,
    to_onnx,
    write_card,
)
from suture.evaluation.scoring import predict_masks
from suture.models.model import Model, save_model
from suture.models.model_files import TRAINED_ON
from suture.models.segmenter import build_segmenter
from suture.prediction.predictor import Predictor

DOC = Path(__file__).resolve().parents[2] / "docs/how-to/export.md"


def run(path: Path | bytes, frames: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"frames": frames})[0]


def about(path: Path) -> dict[str, Any]:
    return json.loads(next(prop.value for prop in onnx.load(path).metadata_props if prop.key == "suture"))


def random_model(architecture: str, encoder: str, size: tuple[int, int]) -> Model:
    torch.manual_seed(0)
    segmenter = build_segmenter(architecture, encoder, 3).eval()
    with torch.no_grad():  # random weights are unsure and flat: let them decide
        segmenter.head.get_parameter("classifier.weight").mul_(30)
    return Model(segmenter, ("a", "b", "c"), ((0, 0, 0), (1, 1, 1), (2, 2, 2)), size)


def picture(height: int, width: int) -> np.ndarray:
    """Soft patches of many colours."""
    patches = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    return cv2.resize(patches, (width, height), interpolation=cv2.INTER_CUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def exported(finished: Path, folder: Path) -> Exported:
    """With the options that an operating room would take: the videos' size, masks, fp32."""
    return export_run(finished, folder / "model.onnx", frame=(48, 64))


@pytest.fixture(scope="module")
def frames(finished: Path) -> tuple[np.ndarray, np.ndarray]:
    """Frames of the run's data with the masks that the evaluation gives them."""
    video = next(video for video in load_dataset(finished.parent / "data") if video.view == View(0, 0, 64, 48))
    indices = video.usable[:4]
    masks = predict_masks(Model.load(finished).segmenter, video, indices, (32, 32))
    return np.stack([video.read(index) for index in indices]), np.stack([mask for _, mask in masks])


def test_masks_are_those_of_the_evaluation(exported: Exported, frames: tuple[np.ndarray, np.ndarray]) -> None:
    found = np.concatenate([run(exported.path, frame[None]) for frame in frames[0]])
    assert found.dtype == np.uint8
    assert found.shape == frames[1].shape
    assert len(np.unique(found)) > 1
    assert (found == frames[1]).mean() >= 0.999


def test_it_was_compared_on_frames_of_the_run(exported: Exported) -> None:
    assert exported.real
    assert exported.checked == 4
    assert exported.agreement >= MIN_AGREEMENT["fp32"]


def test_the_file_is_plain_onnx(exported: Exported) -> None:
    model = onnx.load(exported.path)
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    shapes = {
        value.name: (value.type.tensor_type.elem_type, [d.dim_value for d in value.type.tensor_type.shape.dim])
        for value in (*model.graph.input, *model.graph.output)
    }
    refuse_bytes_inside(model)
    byte = onnx.TensorProto.UINT8
    assert shapes == {"frames": (byte, [1, 48, 64, 3]), "masks": (byte, [1, 48, 64])}


def refuse_bytes_inside(model: onnx.ModelProto) -> None:
    """TensorRT takes bytes as floats at once, and gives bytes made of floats at last; no other step knows them."""
    typed = onnx.shape_inference.infer_shapes(model).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*typed.input, *typed.value_info, *typed.output)}
    assert {name for name, kind in kinds.items() if kind == onnx.TensorProto.UINT8} == {"frames", "masks"}
    for node in typed.node:
        if {"frames", "masks"} & {*node.input, *node.output}:
            other = (set(node.input) | set(node.output)) - {"frames", "masks"}
            assert (node.op_type, [kinds[name] for name in other]) == ("Cast", [onnx.TensorProto.FLOAT])


def test_the_file_says_what_it_is_and_not_where_it_was_made(exported: Exported, finished: Path) -> None:
    said = about(exported.path)
    model = Model.load(finished)
    assert [one["name"] for one in said["classes"]] == list(model.names)
    assert [tuple(one["color"]) for one in said["classes"]] == list(model.colors)
    expected = {"format": 1, "size": [32, 32], "multiple": 16, "kind": "fixed", "output": "masks", "precision": "fp32"}
    assert said | expected == said
    assert said["run"]["dataset"] == "synthetic"
    assert len(said["run"]["sha256"]) == 64
    assert (said["run"]["view"], said["run"]["videos_by"]) == ("auto", "folder")
    content = exported.path.read_bytes()
    for secret in (b"patient-doe", b"site-packages", b"suture/deploy", str(Path.home()).encode() + b"/"):
        assert secret not in content
    assert "patient-doe" not in exported.card.read_text()


def test_the_example_of_the_documentation_runs(
    exported: Exported, frames: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert "import suture" not in code
    shutil.copy(exported.path, tmp_path / "model.onnx")
    cv2.imwrite(str(tmp_path / "frame.png"), frames[0][0][..., ::-1])
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(code, space)
    np.testing.assert_array_equal(space["mask"], run(exported.path, frames[0][:1])[0])


@pytest.mark.parametrize(
    ("architecture", "encoder", "size"),
    [
        ("deeplabv3", "tu-test_resnet", (32, 40)),
        ("unet", "tu-test_resnet", (32, 32)),
        ("segformer", "mit_b0", (32, 32)),
        ("pan", "tu-mobilenetv3_small_050", (128, 128)),  # the kind of the preset `fast`
    ],
)
def test_architectures(architecture: str, encoder: str, size: tuple[int, int]) -> None:
    model = random_model(architecture, encoder, size)
    shape = ExportFormat(frame=(61, 83))
    file = to_onnx(model, shape)
    assert {node.domain for node in onnx.load_from_string(file).graph.node} == {""}
    frames = picture(61, 83)[None]
    with torch.inference_mode():
        expected = DeployedSegmenter(model.segmenter, size, shape)(torch.from_numpy(frames)).numpy()
    assert len(np.unique(expected)) > 1
    assert (run(file, frames) == expected).mean() >= MIN_AGREEMENT["fp32"]


def test_half_precision_by_the_command(
    finished: Path, exported: Exported, frames: tuple[np.ndarray, np.ndarray], folder: Path
) -> None:
    path = folder / "half.onnx"
    result = CliRunner().invoke(app, ["export", str(finished), "-o", str(path), "--frame", "64x48", "--fp16"])
    assert "frames, uint8 1×48×64×3 → masks, uint8 1×48×64; fp16, opset 18" in result.output
    assert re.search(r"Same class as in PyTorch: [\d.]+% of the pixels of 4 frames of the run's", result.output)
    assert about(path)["precision"] == "fp16"
    assert path.stat().st_size < 0.6 * exported.path.stat().st_size
    found = np.concatenate([run(path, frame[None]) for frame in frames[0]])
    assert found.dtype == np.uint8
    assert (found == frames[1]).mean() >= MIN_AGREEMENT["fp16"]


def test_any_size_and_any_batch(finished: Path, folder: Path, frames: tuple[np.ndarray, np.ndarray]) -> None:
    done = export_run(finished, folder / "dynamic.onnx", dynamic=True, logits=True)
    said = about(done.path)
    assert (said["kind"], said["output"]) == ("dynamic", "logits")
    segmenter = Model.load(finished).segmenter
    wide = np.random.default_rng(0).integers(0, 256, (1, 640, 224, 3), np.uint8)  # more cells than taps lie apart
    for given in (frames[0][:1], frames[0][:3], frames[0][:2, :32, :16], wide):
        with torch.inference_mode():
            expected = segmenter(torch.from_numpy(given).permute(0, 3, 1, 2) / 255).numpy()
        found = run(done.path, given)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_an_architecture_of_one_size_is_refused_as_dynamic(tmp_path: Path, finished: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    random_model("pspnet", "tu-test_resnet", (32, 32)).save(run)
    with pytest.raises(UserError, match=r"pspnet with tu-test_resnet has no graph .*: leave --dynamic out"):
        export_run(run, tmp_path / "model.onnx", dynamic=True)
    assert not (tmp_path / "model.onnx").exists()


def test_a_view_is_cut_out_and_the_rest_ignored(finished: Path, tmp_path: Path) -> None:
    """And without its data a run is compared on generated frames."""
    away = tmp_path / "away"
    shutil.copytree(finished, away)
    config = (away / "config.yaml").read_text()
    (away / "config.yaml").write_text(re.sub(r"root: .*", "root: nowhere", config))
    view = View(10, 4, 50, 42)
    done = export_run(away, tmp_path / "view.onnx", frame=(60, 70), view=view)
    assert not done.real
    assert about(done.path)["view"] == {"rect": [10, 4, 50, 42]}
    refuse_bytes_inside(onnx.load(done.path))
    frame = picture(60, 70)
    found = run(done.path, frame[None])[0]
    np.testing.assert_array_equal(found != IGNORE, view.mask(70, 60))
    scene = np.ascontiguousarray(view.crop(frame))[None]
    whole = DeployedSegmenter(Model.load(finished).segmenter, (32, 32), ExportFormat(frame=(42, 50)))
    with torch.inference_mode():
        expected = whole(torch.from_numpy(scene))[0].numpy()
    assert (view.crop(found) == expected).mean() >= MIN_AGREEMENT["fp32"]


def test_the_view_of_the_training_is_the_default(finished: Path, tmp_path: Path) -> None:
    view = View(10, 4, 50, 42, (35.0, 25.0, 20.0))
    stated = {"view": view.to_json(), "size": [60, 70]}
    run_folder = tmp_path / "run"
    shutil.copytree(finished, run_folder)
    notes = {"view": stated, "videos_by": "folder", "mirror": []}
    save_model(Model.load(finished).segmenter, run_folder / "model.safetensors", {TRAINED_ON: json.dumps(notes)})
    done = export_run(run_folder, tmp_path / "view.onnx")
    assert (done.shape.frame, about(done.path)["view"]) == ((60, 70), view.to_json())
    refuse_bytes_inside(onnx.load(done.path))
    frame = picture(60, 70)
    found = run(done.path, frame[None])[0]
    np.testing.assert_array_equal(found != IGNORE, view.mask(70, 60))
    for model in (run_folder, done.path):
        assert (Predictor(model, "cpu")(frame) == found).mean() >= MIN_AGREEMENT["fp32"]
    assert (Predictor(run_folder, "cpu")(frame, view=None) != IGNORE).all()
    assert export_run(run_folder, tmp_path / "scene.onnx", view=None).shape.view is None


def test_a_killed_export_can_be_repeated(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card is written first, so that a model is never without its card."""

    def write(path: Path, content: bytes) -> None:
        if path.suffix == ".onnx":
            raise KeyboardInterrupt
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(export, "write_bytes", write)
        with pytest.raises(KeyboardInterrupt):
            export_run(finished, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["MODEL_CARD.md"]
    assert export_run(finished, tmp_path / "model.onnx").path.exists()


def test_nothing_is_written_over(finished: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    content = exported.path.read_bytes()
    export_run(finished, exported.path, frame=(48, 64))  # the same again is done
    with pytest.raises(UserError, match=r"model.onnx is there already"):
        export_run(finished, exported.path, frame=(50, 64))
    assert exported.path.read_bytes() == content
    card = exported.path.parent / "sub" / "other.card.md"
    card.parent.mkdir()
    card.write_bytes(theirs := "somebody else's café".encode("latin-1"))
    with pytest.raises(UserError, match=r"other.card.md is there already"):
        export_run(finished, card.with_name("other.onnx"))
    monkeypatch.setattr(export, "_agreement", lambda *_: 0.99)
    monkeypatch.setattr(export, "to_onnx", lambda *_: b"")
    with pytest.raises(UserError, match=r"was not written: its masks agree .* in 99.000% .* expected 99.9%"):
        export_run(finished, card.with_name("other.onnx"), force=True)
    assert card.read_bytes() == theirs
    assert [path.name for path in card.parent.iterdir()] == ["other.card.md"]
    monkeypatch.setattr(export, "_agreement", lambda *_: 1.0)
    export_run(finished, card.with_name("other.onnx"), force=True)
    assert card.read_text().startswith("# Model card: tiny")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--frame", "1920"], "--frame is 1920, expected numbers such as 1920x1080"),
        (["--frame", "0x10"], "--frame is 0x10, expected"),
        (["--frame", "192000x108000"], "--frame is 192000x108000, expected at most 256 million pixels"),
        (["--view", "0,0,9,9"], "expected a rectangle within the frames of --frame"),
        (["--frame", "20x20", "--view", "-1,0,9,9"], "--view is -1,0,9,9, expected numbers such as 420,0,1080,1080"),
        (["--frame", "20x20", "--view", "12,0,9,9"], "--view is 12,0,9,9, expected a rectangle within the frames"),
        (["--dynamic", "--frame", "20x20"], "leave --frame and --view out"),
        (["--frame", "20x20", "--view", "2,0,9,9", "--logits"], "leave --view out"),
        (["-o", "model.bin"], "--output is model.bin, expected a name that ends in .onnx"),
    ],
)
def test_mistakes_on_the_command_line(finished: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["export", str(finished), *arguments])
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)


@pytest.mark.parametrize("name", ["card.md", "CARD.MD"])
def test_the_card_alone(name: str, finished: Path, tmp_path: Path) -> None:
    card = tmp_path / name
    assert CliRunner().invoke(app, ["export", str(finished), "-o", str(card)]).exit_code == 0
    assert card.read_text().startswith("# Model card: tiny")


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    for run, said in (
        (tmp_path, "model.json"),
        ("absent", "absent does not exist: expected the folder of a finished run"),
    ):
        result = CliRunner().invoke(app, ["export", str(run)])
        assert isinstance(result.exception, UserError)
        assert said in str(result.exception)


def test_a_place_that_cannot_be_written_to(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["export", str(finished), "-o", str(tmp_path / "file/MODEL_CARD.md")])
    assert isinstance(result.exception, UserError)
    assert "MODEL_CARD.md cannot be written (File exists)" in str(result.exception)


@pytest.mark.parametrize("name", ["model.onnx", "card.md"])
def test_no_model_or_card_goes_among_the_masks(name: str, finished: Path) -> None:
    output = finished.parent / "data/masks" / name
    write = write_card if name.endswith(".md") else export_run
    with pytest.raises(UserError, match=r"lies in .*masks, where .*dataset\.yaml has its masks"):
        write(finished, output)
    assert not output.exists()
