"""`make` with tools that take no time: what it runs side by side, what it prints, and when it fails."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def make(
    folder: Path, goal: str, tools: dict[str, str], *variables: str, at: str = ".venv/bin"
) -> subprocess.CompletedProcess[str]:
    """Run `make` in a folder of its own, with shell scripts for tools."""
    shutil.copy(ROOT / "Makefile", folder)
    for name, script in tools.items():
        path = folder / at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
    installed = [".venv/.ready"] if (folder / ".venv").exists() else []
    for name in ("constraints.txt", "pyproject.toml", *installed):
        (folder / name).touch()
    # This may be `make test` itself, whose settings are not for another make.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", goal, *variables], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("types", "tests"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_types_are_looked_at_beside_the_tests_and_both_count(types: int, tests: int, tmp_path: Path) -> None:
    """Each of the two waits until the other has begun."""
    meet = "touch $0.begun; for i in $(seq 600); do [ -e .venv/bin/{other}.begun ] && break; sleep 0.05; done\n"
    meet += "[ -e .venv/bin/{other}.begun ] || exit 9\n"
    tools = {
        "ruff": "",
        "mypy": f"{meet.format(other='python')}echo one wrong type; echo in all; exit {types}\n",
        "python": f"printf ..; {meet.format(other='mypy')}echo ..; echo 4 passed; exit {tests}\n",
    }
    done = make(tmp_path, "test", tools)
    assert (done.returncode == 0) == (types == 0 and tests == 0), done.stdout + done.stderr
    if types:
        assert "\none wrong type\nin all\n" in done.stdout
        assert "4 passed\n" in done.stdout  # wherever mypy's lines came
    else:
        assert done.stdout == "....\n4 passed\n"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_demo_ends_with_what_to_open_and_what_its_scores_mean(tmp_path: Path) -> None:
    done = make(tmp_path, "demo", {"suture": 'echo suture "$@"\n'})
    assert done.returncode == 0, done.stderr
    *commands, opened, meaning = done.stdout.splitlines()
    report, predict = commands[-2].split(), commands[-1].split()
    film = f"{predict[predict.index('-o') + 1]}/{Path(predict[3]).stem}/overlay.mp4"
    assert all(path in opened for path in (report[report.index("-o") + 1], film))
    assert all(Path(run).name in meaning for run in report if run.startswith("demo/runs/"))


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("status", [0, 1])
def test_an_installation_says_every_half_minute_that_it_goes_on(status: int, tmp_path: Path) -> None:
    """Seconds that take no time are counted, and pip waits for a little more than a minute of them."""
    tools = {
        "sleep": f"echo >> seconds; exec {shutil.which('sleep')} 0.001\n",
        "python": f"""
case "$1 $2" in
    "-m venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; touch seconds;;
    "-m pip") while [ "$(wc -l < seconds)" -le 65 ]; do :; done; exit {status};;
esac
""",
    }
    path = f"PATH={tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}"
    done = make(tmp_path, ".venv/.ready", tools, "PYTHON=tools/python", path, at="tools")
    assert (done.returncode == 0) == (tmp_path / ".venv/.ready").exists() == (status == 0)
    assert done.stdout.splitlines()[:3] == [
        "installing what Suture needs into .venv (3–5 minutes)",
        "installing for 30 seconds",
        "installing for 60 seconds",
    ]
