"""The built wheel in an environment of its own: an editable install hides a forgotten template."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.config import load_config
from suture.training.train import train

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(folder)], check=True)
    return next(folder.glob("*.whl"))


def run(*words: object, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("suture/")}
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/suture").rglob("*") if path.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}


def test_the_installed_wheel_checks_and_reports(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own; its third parties are those of this environment."""
    venv.create(tmp_path / "env", with_pip=False)
    python, suture = tmp_path / "env/bin/python", tmp_path / "env/bin/suture"
    site = next((tmp_path / "env/lib").glob("python*/site-packages"))
    (site / "third_parties.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")) + "\n")
    subprocess.run([*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    where = run(python, "-c", "import suture; print(suture.__file__)", folder=tmp_path)
    assert Path(where).is_relative_to(tmp_path)

    write_synthetic(tmp_path / "data", SyntheticSettings(cases=4, frames=12, width=64, height=64), progress=False)
    run(suture, "check", "data", folder=tmp_path)
    settings = ["method=supervised", "method.train.steps=2", "data.size=32", "compute.accelerator=cpu"]
    train(load_config(tmp_path / "data", "demo", settings), tmp_path / "run")
    run(suture, "report", "run", folder=tmp_path)
    assert (tmp_path / "run/report.html").stat().st_size > 10_000
