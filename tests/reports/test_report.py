"""The report as a file: its content, what it never contains, and its remarks on runs that lack something."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_runs import Runs

from suture.cli import main
from suture.core.errors import UserError
from suture.data.images import read_image
from suture.reports.report import write_report
from suture.reports.scores_section import scores_table

Copy = Callable[..., Path]
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, console: Console) -> Write:
    """Function that writes a report and returns the page; without pictures of frames unless asked for."""

    def write_page(*runs: Path, frames: bool = False, **options: Any) -> str:
        path = write_report(runs, tmp_path / "report.html", frames, console, **options)
        return path.read_text(encoding="utf-8")

    return write_page


def viewers(page: str) -> dict[str, Any]:
    """The pictures of a page."""
    match = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert match
    found: dict[str, Any] = json.loads(match[1])["viewers"]
    return found


def move_data(run: Path, root: Path) -> None:
    """Let a run look for its dataset elsewhere."""
    config = run / "config.yaml"
    config.write_text(re.sub("(?m)^  root: .*", f"  root: {root}", config.read_text()))


def test_two_runs_side_by_side(runs: Runs, write: Write) -> None:
    page = write(runs.supervised, runs.pgvcl, frames=True)
    assert len(page) < 10e6
    for text in ("new videos (test)", "new videos (validation)", "completion", "mIoU per frame", "NSD", "± "):
        assert text in page
    scores = page[: page.index('<section id="confusion">')]
    assert "Every run is one training with one seed" in scores
    assert "<b>" not in scores, "no run is marked as the best"
    for stage in ("train", "pretrain", "contrast", "finetune"):
        assert f"{stage}: loss" in page
    for number in (0, 1):
        assert f'<path class="line run{number}" d="M0 4h30"/>' in page, "the legend of curves shows their dashes"
    assert 'class="shot cut"' in page
    assert page.count('class="labelled"') == 9  # three training videos of fourteen frames, every sixth labelled
    predictions, pseudo = (viewers(page)[name] for name in ("predictions", "pseudo"))
    assert [panel["title"] for panel in predictions["panels"]] == ["truth", "supervised", "pgvcl"]
    groups = [item["groups"] for item in predictions["items"]]
    assert [group[0] for group in groups[:9]] == ["worst"] * 3 + ["median"] * 3 + ["best"] * 3
    assert sum("evenly" in group for group in groups) == 4
    worst, best = predictions["items"][0], predictions["items"][8]
    assert sum(worst["scores"][1:]) < sum(best["scores"][1:])
    titles = ["truth", "pseudo label of pgvcl", "supervised, final", "pgvcl, final"]
    assert [panel["title"] for panel in pseudo["panels"]] == titles
    for text in ("10 frames of new videos", "before contrast (after pretrain)", "starting weights"):
        assert text in page
    assert page.count('class="scatter"') == 4
    assert page.count("data:video/mp4;base64,") == 1
    assert "case04, frames 0 to 13: frame, truth, supervised, pgvcl" in page


def test_page_has_no_link_and_no_path(runs: Runs, tmp_path: Path, write: Write) -> None:
    page = write(runs.pgvcl, frames=True)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"url\((?!['\"]?data:)|@import|https?://", page)
    assert "patient-doe" not in page
    assert str(tmp_path) not in page


def test_without_frames_there_is_no_picture(runs: Runs, footage: Path, write: Write) -> None:
    page = write(runs.supervised, runs.pgvcl, videos=[footage])
    for text in ("data:image", "data:video", "<img src", "<video"):
        assert text not in page
    assert viewers(page) == {}
    for text in (
        'class="scatter"',
        'class="area"',
        'class="confusion"',
        "IoU over the distance to the nearest labelled frame",
        "Label these next",
    ):
        assert text in page


def test_default_paths(runs: Runs, console: Console) -> None:
    assert write_report([runs.supervised], frames=False, console=console) == runs.supervised / "report.html"
    both = write_report([runs.supervised, runs.pgvcl], frames=False, console=console)
    assert both == runs.supervised.parent / "report.html"


def test_paths_that_cannot_be_written(runs: Runs, console: Console) -> None:
    with pytest.raises(UserError, match="is a folder"):
        write_report([runs.supervised], runs.supervised, console=console)
    with pytest.raises(UserError, match="masks"):
        write_report([runs.supervised], runs.data / "masks/report.html", console=console)
    with pytest.raises(UserError, match="videos"):
        write_report([runs.supervised], figures=runs.data / "videos/figures", console=console)
    assert not list(runs.data.rglob("report.html"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_write_permission(runs: Runs, tmp_path: Path, console: Console) -> None:
    (tmp_path / "kept").mkdir(mode=0o555)
    with pytest.raises(UserError, match=r"page\.html cannot be written"):
        write_report([runs.supervised], tmp_path / "kept" / "page.html", console=console)


def test_without_masks_of_new_videos(runs: Runs, write: Write) -> None:
    page = write(runs.unmasked, frames=True)
    for text in (
        "No new video with masks was scored",
        "labelled training frames.",
        "Completion was not measured",
        "only their confidence is known",
        "Confidence over the distance",
        "Label these next",
        "frames 0 to 13: frame, unmasked",
    ):
        assert text in page
    confidence = re.findall(r"<title>unmasked, frames to the nearest labelled one [\d.]+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, confidence)) <= 100, "in percent"
    assert "predictions" not in viewers(page)
    pictures = viewers(page)["footage"]
    assert [panel["kind"] for panel in pictures["panels"]] == ["prediction"]
    assert {item["video"] for item in pictures["items"]} == {"case03", "case04"}
    assert page.count('class="area"') >= 2


def test_given_videos(runs: Runs, footage: Path, write: Write) -> None:
    page = write(runs.supervised, frames=True, videos=[footage, footage / "case04.mp4"])
    names = {item["video"] for item in viewers(page)["footage"]["items"]}
    assert names == {"case04 (2)", "case04 (3)"}, "the dataset's own case04 is another video"
    assert "<b>case04 (2)</b> over time" in page
    assert all(kind in page for kind in ("share of the view", "confidence: ", "entropy of", "consistency: "))
    curves = re.findall(r"<title>supervised, frame \d+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, curves)) <= 100, "in percent, as the table above them"
    assert "doe-new" not in page


def test_given_videos_need_a_finished_model(
    runs: Runs, footage: Path, tmp_path: Path, write: Write, copy_run: Copy
) -> None:
    with pytest.raises(UserError, match="does not exist"):
        write(runs.supervised, videos=[tmp_path / "none"])
    run = copy_run(runs.supervised, "half")
    (run / "model.json").unlink()
    with pytest.raises(UserError, match="needs a finished model"):
        write(run, videos=[footage])
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("frames", [True, False])
def test_figures(runs: Runs, tmp_path: Path, write: Write, frames: bool) -> None:
    folder = tmp_path / "figures"
    write(runs.supervised, runs.pgvcl, frames=frames, figures=folder)
    names = {file.name for file in folder.iterdir()}
    dots = {"embeddings-supervised.png", "embeddings-pgvcl.png"}
    pictures = {f"comparison-{group}.png" for group in ("evenly", "worst", "best", "median", "runs-differ")}
    assert names == dots | (pictures | {"pseudo-labels.png", "side-by-side.mp4"} if frames else set())
    for name in names - {"side-by-side.mp4"}:
        assert read_image(folder / name).std() > 1, name
    with pytest.raises(UserError, match="not an empty folder"):
        write(runs.supervised, figures=folder)


def test_unfinished_run(runs: Runs, write: Write, copy_run: Copy, console: Console) -> None:
    run = copy_run(runs.pgvcl, "half")
    for file in ("model.json", "model.safetensors", "metrics.json", "stages/3-contrast/done.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages/4-finetune")
    page = write(run, runs.supervised, frames=True)
    sentence = "Not finished: half. Unfinished parts are left out."
    assert sentence in page
    assert console.export_text().splitlines().count(sentence) == 1
    assert ">at step 2, not done yet<" in page
    assert page.count(">not done yet<") == 1
    assert [panel["title"] for panel in viewers(page)["predictions"]["panels"]] == ["truth", "supervised"]
    alone = write(run)
    assert "in finished stages" in alone


def test_missing_sets_are_remarked(runs: Runs, write: Write, copy_run: Copy) -> None:
    def remove(*sets: str) -> Callable[[dict[str, Any]], None]:
        return lambda metrics: [metrics.pop(which) for which in sets] and None

    page = write(copy_run(runs.supervised, "untested", metrics=remove("test", "completion")))
    assert "No test video was scored." in page
    assert "Completion was not measured" in page
    page = write(copy_run(runs.supervised, "unscored", metrics=remove("test", "val")))
    assert "No new video with masks was scored" in page
    assert "No test video was scored" not in page


def test_score_that_is_null_is_a_dash(runs: Runs, write: Write, copy_run: Copy) -> None:
    def clear(metrics: dict[str, Any]) -> None:
        metrics["test"]["overall"] = dict.fromkeys(metrics["test"]["overall"]) | {"frames": 14}
        for one in metrics["test"]["classes"].values():
            one |= {"iou": None, "false_presence": None}

    page = write(copy_run(runs.supervised, "run", metrics=clear))
    assert '<span class="big">–</span>' in page
    assert '<td class="bar run0" style="--share: 0%">–</td>' in page


def test_run_without_a_step(runs: Runs, write: Write, copy_run: Copy) -> None:
    run = copy_run(runs.pgvcl, "begun")
    for file in ("model.json", "model.safetensors", "metrics.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages")
    with pytest.raises(UserError, match="has no trained step yet"):
        write(run)


def test_scored_run_without_its_stages(runs: Runs, write: Write, copy_run: Copy) -> None:
    """Stages are large, so that people remove them; then the time of training is not known."""
    run = copy_run(runs.pgvcl, "kept")
    shutil.rmtree(run / "stages")
    assert write(run, runs.supervised).count(">not known<") == 1
    assert scores_table([run]).row_count > 0


@pytest.mark.parametrize("name", ["metrics.json", "data.json", "environment.json", "stages/1-pretrain/done.json"])
def test_damaged_file_is_named(name: str, runs: Runs, write: Write, copy_run: Copy) -> None:
    run = copy_run(runs.pgvcl, "changed")
    (run / name).write_text('{"test": 3}')
    with pytest.raises(UserError, match=name):
        write(run)


def test_class_that_scores_leave_out_is_in_no_truth(runs: Runs, write: Write, copy_run: Copy) -> None:
    def leave_out(metrics: dict[str, Any]) -> None:
        metrics["val"]["notes"] = ["gauze left out of validation: no training video shows it"]
        metrics["test"]["left_out"] = ["liver"]

    for run, is_left_out in ((runs.supervised, False), (copy_run(runs.supervised, "run", metrics=leave_out), True)):
        page = write(run, frames=True)
        assert page.count("; gauze left out of validation: no training video shows it.") == is_left_out
        truths = [item["masks"][0] for item in viewers(page)["predictions"]["items"]]
        classes = {int(one, 36) % 256 for truth in truths for one in truth.split()}
        assert 0 in classes
        assert (1 in classes) is not is_left_out


def test_missing_data(runs: Runs, footage: Path, tmp_path: Path, write: Write, copy_run: Copy) -> None:
    run = copy_run(runs.supervised, "orphan")
    move_data(run, tmp_path / "gone")
    page = write(run, frames=True)
    assert "The data of orphan could not be read" in page
    assert str(tmp_path) not in page
    assert viewers(page) == {}
    assert 'class="timeline"' in page
    page = write(run, frames=True, videos=[footage])
    assert {item["video"] for item in viewers(page)["footage"]["items"]} == {"case04"}


def test_classes_that_changed_since_training(
    runs: Runs, tmp_path: Path, write: Write, copy_run: Copy, console: Console
) -> None:
    data = shutil.copytree(runs.data, tmp_path / "data")
    table = data / "dataset.yaml"
    table.write_text(table.read_text().replace("name: liver", "name: spleen"))
    run = copy_run(runs.pgvcl, "changed")
    move_data(run, data)
    page = write(run, frames=True)
    assert "The data of changed could not be read" in page
    assert viewers(page) == {}
    assert "(liver is gone and spleen is new)" in console.export_text()


def test_videos_that_changed_since_training(runs: Runs, write: Write, copy_run: Copy, console: Console) -> None:
    def lengthen(data: dict[str, Any]) -> None:
        data["videos"]["case02"]["frames"] += 1

    def exclude(data: dict[str, Any]) -> None:
        video = data["videos"]["case02"]
        video["excluded"] = [] if video["excluded"] else [1]

    run = copy_run(runs.supervised, "longer", data=lengthen)
    write(run)
    assert "has 14 frames, expected 15" in console.export_text()
    with pytest.raises(UserError, match="differ in the lengths of videos"):
        write(runs.supervised, run)
    page = write(copy_run(runs.pgvcl, "before", data=exclude))
    assert "The training frames have changed since before was trained: its pseudo labels are left out." in page


def test_runs_that_cannot_stand_side_by_side(
    runs: Runs, tmp_path: Path, write: Write, copy_run: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy_run(runs.supervised, "other", data=lambda data: data.update(dataset="another"))
    with pytest.raises(UserError, match="differ in dataset"):
        write(runs.supervised, other)
    with pytest.raises(UserError, match="supervised is given twice"):
        write(runs.pgvcl, runs.supervised, runs.supervised)
    with pytest.raises(UserError, match="not a run folder"):
        write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^other/\.\./other is given twice"):
        write(Path("other/../other"), Path("other"))


def _other_file(data: dict[str, Any]) -> None:
    data["videos"]["case02"]["sha256"] = "0" * 64


def _fewer_labels(data: dict[str, Any]) -> None:
    data["labelled"].popitem()


def _fewer_masks(metrics: dict[str, Any]) -> None:
    metrics["test"]["overall"]["frames"] -= 1
    next(iter(metrics["test"]["videos"].values()))["frames"] -= 1


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"data": _other_file}, "The files of case02 differ between changed and supervised."),
        ({"data": _fewer_labels}, "changed was trained on other labelled frames than supervised"),
        ({"metrics": _fewer_masks}, r"changed is not scored on the same masks as supervised: test on \d+ frames of"),
    ],
)
def test_differences_between_runs_are_remarked(
    runs: Runs, write: Write, copy_run: Copy, changes: dict[str, Any], remark: str
) -> None:
    page = write(runs.supervised, copy_run(runs.supervised, "changed", **changes))
    assert re.search(remark, page)
    assert "differences between runs may be chance" in page
    assert 'class="diff' in page


def test_unequal_training_is_remarked(runs: Runs, write: Write, copy_run: Copy) -> None:
    run = copy_run(runs.supervised, "longer")
    (done,) = run.glob("stages/*/done.json")
    record = json.loads(done.read_text())
    done.write_text(json.dumps(record | {"steps": 2 * record["steps"]}))
    steps = f"supervised steps {2 * record['steps']} instead of {record['steps']}"
    assert f"longer was trained differently from supervised: {steps}." in write(runs.supervised, run)


def test_known_patients_are_remarked(runs: Runs, write: Write, copy_run: Copy) -> None:
    page = write(copy_run(runs.supervised, "known", data=lambda d: d["videos"]["case04"].update(case="case02")))
    assert "trained and tested on videos of case02" in page
    assert "may be chance" not in page, "there is nothing to compare"


def test_scores_of_few_frames_are_remarked(runs: Runs, write: Write, copy_run: Copy) -> None:
    def set_frames(metrics: dict[str, Any], frames: int) -> None:
        for scores in metrics.values():
            scores["overall"]["frames"] = 100
            scores["primary"]["interval"] = [0.1, 0.2]
        metrics["test"]["overall"]["frames"] = frames

    assert "Scores rest on little: new videos (test) on 14 frames of 1 video, new videos (v" in write(runs.supervised)
    many = copy_run(runs.supervised, "many", metrics=lambda metrics: set_frames(metrics, 100))
    assert "rest on little" not in write(many)
    few = copy_run(runs.supervised, "few", metrics=lambda metrics: set_frames(metrics, 99))
    assert "Scores rest on little: new videos (test) on 99 frames of 1 video; on other videos" in write(few)


def test_command(
    runs: Runs, footage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-o", "r.html", "--videos", str(footage), "--figures", "figures", "--no-frames"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["suture", "report", str(runs.unmasked), *options])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out.splitlines() == ["Report: r.html", "Figures: figures"]
    assert (tmp_path / "r.html").exists()
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["embeddings-unmasked.png"]
