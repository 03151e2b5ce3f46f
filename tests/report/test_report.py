"""The report as a file: what is in it, what never is, and what it says of runs that lack something."""

import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tiny_runs import Runs

from suture.errors import UserError
from suture.report.report import write_report


def content(page: str) -> dict:
    """The pictures' part of a report."""
    match = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def copied(run: Path, tmp_path: Path, name: str) -> Path:
    """A run of its own, that a test may change."""
    return shutil.copytree(run, tmp_path / name)


def test_two_runs_side_by_side(runs: Runs, tmp_path: Path, console: Console) -> None:
    path = write_report([runs.supervised, runs.pgvcl], tmp_path / "both.html", console=console)
    page = path.read_text()
    assert path.stat().st_size < 10e6
    for said in (
        "new videos (test)",
        "new videos (validation)",
        "completion",
        "mIoU per frame",
        "NSD",
        "false presence",
    ):
        assert said in page
    for stage in ("train", "pretrain", "contrast", "finetune"):
        assert f"{stage}: loss" in page
    assert "case04" in page
    assert 'class="cut"' in page
    assert page.count('class="labelled"') == 9  # three training videos of fourteen frames, every sixth labelled
    viewers = content(page)["viewers"]
    assert [panel["title"] for panel in viewers["predictions"]["panels"]] == ["truth", "supervised", "pgvcl"]
    groups = [item["group"] for item in viewers["predictions"]["items"]]
    assert groups[:9] == ["worst"] * 3 + ["median"] * 3 + ["best"] * 3
    worst, best = viewers["predictions"]["items"][0], viewers["predictions"]["items"][8]
    assert sum(worst["scores"][1:]) < sum(best["scores"][1:])
    titles = [panel["title"] for panel in viewers["pseudo"]["panels"]]
    assert titles == ["truth", "pseudo label of pgvcl", "supervised at the end", "pgvcl at the end"]


def test_nothing_from_outside_and_no_path(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.pgvcl], tmp_path / "one.html", console=console).read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"url\((?!['\"]?data:)|@import|https?://", page)
    assert "patient-doe" not in page
    assert str(tmp_path) not in page


def test_without_frames_there_is_no_picture(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.supervised, runs.pgvcl], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "data:image" not in page
    assert content(page)["viewers"] == {}
    assert "IoU over the distance to the nearest labelled frame" in page
    assert 'class="confusion"' in page


def test_where_it_goes(runs: Runs, console: Console) -> None:
    assert write_report([runs.supervised], frames=False, console=console) == runs.supervised / "report.html"
    both = write_report([runs.supervised, runs.pgvcl], frames=False, console=console)
    assert both == runs.supervised.parent / "report.html"
    with pytest.raises(UserError, match="is a folder"):
        write_report([runs.supervised], runs.supervised, console=console)


def test_without_masks_it_says_what_can_be_said(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.unmasked], tmp_path / "r.html", console=console).read_text()
    assert "No new video has masks" in page
    assert "Completion was not measured" in page
    assert "only their confidence is known" in page
    assert "Confidence over the distance" in page
    viewers = content(page)["viewers"]
    assert [panel["kind"] for panel in viewers["predictions"]["panels"]] == ["prediction"]
    assert {item["video"] for item in viewers["predictions"]["items"]} == {"case03", "case04"}


def test_run_that_is_not_finished(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.pgvcl, tmp_path, "half")
    for file in ("model.json", "model.safetensors", "metrics.json", "stages/3-contrast/done.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages/4-finetune")
    page = write_report([run, runs.supervised], tmp_path / "r.html", console=console).read_text()
    assert "half is not finished" in page
    assert page.count(">not done yet<") == 2
    assert [panel["title"] for panel in content(page)["viewers"]["predictions"]["panels"]] == ["truth", "supervised"]


def test_data_that_is_gone(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "orphan")
    config = run / "config.yaml"
    config.write_text(re.sub("root: .*", f"root: {tmp_path / 'gone'}", config.read_text()))
    page = write_report([run], tmp_path / "r.html", console=console).read_text()
    assert "The data of orphan could not be read" in page
    assert str(tmp_path) not in page
    assert content(page)["viewers"] == {}
    assert 'class="timeline"' in page


def test_runs_that_cannot_stand_side_by_side(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "other")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(data | {"dataset": "another"}))
    with pytest.raises(UserError, match="different dataset"):
        write_report([runs.supervised, run], tmp_path / "r.html", console=console)
    with pytest.raises(UserError, match="given twice"):
        write_report([runs.supervised, runs.supervised], tmp_path / "r.html", console=console)
    with pytest.raises(UserError, match="not a run folder"):
        write_report([tmp_path], tmp_path / "r.html", console=console)


def test_other_labels_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "fewer")
    data = json.loads((run / "data.json").read_text())
    data["labelled"].popitem()
    (run / "data.json").write_text(json.dumps(data))
    page = write_report([runs.supervised, run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "fewer learnt from other labelled frames than supervised" in page


def test_known_patients_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "sequences")
    data = json.loads((run / "data.json").read_text())
    data["videos"]["case04"]["case"] = "case02"
    (run / "data.json").write_text(json.dumps(data))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "trained and tested on videos of case02" in page
