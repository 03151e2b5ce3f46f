"""What `import suture` gives, and the examples that use it, run as a reader would."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import started
from torch.utils.data import DataLoader

import suture
from suture.core.errors import UserError
from suture.data.images import read_image
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.methods.supervised import SupervisedOnly

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments: object, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def example(name: str, *words: object, folder: Path) -> str:
    said = folder / "said"
    with started(ROOT / "examples" / name, *words, said=said, folder=folder) as process:
        process.join(300)
        assert process.exitcode == 0, said.read_text()[-3000:]
    return said.read_text()


def test_importing_it_is_quick() -> None:
    loaded = python("-c", "import suture, sys; print('torch' in sys.modules, suture.__version__)", folder=ROOT)
    assert loaded.split() == ["False", suture.__version__]


def test_a_dataset_is_read_without_torch(tmp_path: Path) -> None:
    python("-m", "suture", "synthetic", tmp_path / "videos", "--cases", 2, "--frames", 12, folder=tmp_path)
    words = "import suture, sys; cases = {video.case for video in suture.load_dataset('videos').videos}; "
    words += "print(len(cases), 'torch' in sys.modules)"
    assert python("-c", words, folder=tmp_path).split() == ["2", "False"]


def test_threads_of_a_training_wait_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A predictor's do not: a single frame takes a few milliseconds less."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    lines = (
        "import contextlib, os, suture",
        "suture.Predictor",
        "print(os.environ.get('OMP_WAIT_POLICY'))",
        "with contextlib.suppress(Exception): suture.train('nowhere')",
        "print(os.environ.get('OMP_WAIT_POLICY'))",
    )
    assert python("-c", "\n".join(lines), folder=tmp_path).split() == ["None", "PASSIVE"]


def test_every_public_name_is_callable_after_every_module_is_imported(tmp_path: Path) -> None:
    """A room with the name of a public function would hide it."""
    lines = (
        "import importlib, pkgutil, suture",
        "modules = [module.name for module in pkgutil.walk_packages(suture.__path__, 'suture.')]",
        "[importlib.import_module(name) for name in modules if not name.endswith('__main__')]",
        "print(all(callable(getattr(suture, name)) and name in dir(suture) for name in suture.__all__))",
    )
    assert python("-c", "\n".join(lines), folder=tmp_path).strip() == "True"


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("sed", "the settings given: there is no setting sed (did you mean seed?)."),
        ("seed.x", "the settings given: found 'seed.x=3', but seed is a value, not a section."),
    ],
)
def test_a_wrong_setting_is_told_from_where_it_came(tmp_path: Path, key: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        suture.train(tmp_path, settings={"seed": 1, key: 3})
    assert str(caught.value) == sentence


SETTINGS = {
    "data.size": 32,
    "model.architecture": "pspnet",
    "model.encoder": "tu-test_resnet",
    "model.weights": None,
    "compute.accelerator": "cpu",
    "evaluation.splits": ["test"],
    "evaluation.completion": False,
}


def test_a_method_of_a_script_is_trained_and_its_model_streams(tmp_path: Path) -> None:
    @suture.method("mine")
    class Mine(SupervisedOnly):
        """The baseline, by another name."""

    synthetic = SyntheticSettings(cases=4, frames=12, width=64, height=64)
    data = write_synthetic(tmp_path / "data", synthetic, progress=False)
    mine = {"method": "mine", "method.train.steps": 2, "method.train.batch": 2}
    run = suture.train(data, tmp_path / "run", settings=SETTINGS | mine, quiet=True)
    assert run.method_name == "mine"
    assert run.metrics["test"]["overall"]["frames"]
    video = next((data / "videos").rglob("*.mp4"))
    predicted = list(suture.predict(run, video, device="cpu"))
    assert len(predicted) == 12
    assert all(frame.shape == (64, 64, 3) and mask.shape == (64, 64) for frame, mask in predicted)


def test_masked_frames_feed_pytorch(tmp_path: Path) -> None:
    synthetic = SyntheticSettings(cases=4, frames=12, width=64, height=64)
    dataset = suture.load_dataset(write_synthetic(tmp_path / "data", synthetic, container="png", progress=False))
    pairs = dataset.pairs("train")
    assert len(pairs) == sum(len(video.with_mask) for video in dataset.split("train"))
    loaded = list(DataLoader(pairs, batch_size=None))
    assert np.array_equal(loaded[0][1], pairs[0][1])
    assert len(loaded) == len(pairs) < len(dataset.pairs())


def test_the_examples_run(tmp_path: Path) -> None:
    said = example("train_on_your_folder.py", "work", folder=tmp_path)
    assert "test, with flips: mIoU" in said
    run = tmp_path / "work/run"
    assert suture.Run(run).metrics
    video = next((tmp_path / "work/videos").rglob("*.mp4"))
    said = example("use_a_model_on_a_video.py", run, video, folder=tmp_path)
    assert f"{video.name}: 20 frames" in said
    assert read_image(tmp_path / "overlay.png").shape == (96, 96, 3)
