"""The report as a file: its content, what it never contains, and its remarks on runs that lack something."""

import json
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
from suture.reports.predictions_section import prediction_pictures
from suture.reports.report import write_report
from suture.reports.report_context import ReportContext, read_footage
from suture.reports.report_path import report_path
from suture.reports.reported_run import read_runs
from suture.reports.scores_section import scores_table
from suture.reports.summary_section import cautions, primary_scores, run_facts, unmeasured

Copy = Callable[..., Path]
Open = Callable[..., ReportContext]


def viewers(page: str) -> dict[str, Any]:
    """The pictures of a page."""
    match = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert match
    content: dict[str, Any] = json.loads(match[1])["viewers"]
    return content


def remarks(*folders: Path) -> str:
    """The cautions about runs."""
    return "\n".join(cautions(read_runs(folders)))


def move_data(run: Path, root: Path) -> None:
    """Let a run look for its dataset elsewhere."""
    config = run / "config.yaml"
    config.write_text(re.sub("(?m)^  root: .*", f"  root: {root}", config.read_text()))


def test_two_runs_side_by_side(both: Path) -> None:
    page = both.read_text()
    assert len(page) < 10e6
    for text in ("new videos (test)", "new videos (validation)", "completion", "mIoU per frame", "NSD", "± "):
        assert text in page
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
    assert [panel["title"] for panel in pseudo["panels"]] == ["truth", "pseudo label of pgvcl", "supervised", "pgvcl"]
    assert page.count('class="scatter"') == 4
    assert page.count("data:video/mp4;base64,") == 2


def test_video_without_truth(both: Path) -> None:
    page = both.read_text()
    assert "<b>new</b> over time" in page
    assert all(kind in page for kind in ("share of the view", "confidence: ", "entropy of", "consistency: "))
    curves = re.findall(r"<title>supervised, frame \d+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, curves)) <= 100, "in percent, as the table above them"


def test_page_has_no_link_and_no_path(both: Path) -> None:
    page = both.read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"url\((?!['\"]?data:)|@import|https?://", page)
    assert not any(name in page for name in ("patient-doe", "doe-new", str(both.parent.parent)))


def test_figures(both: Path) -> None:
    folder = both.parent / "figures"
    names = {file.name for file in folder.iterdir()}
    pictures = {f"comparison-{group}.png" for group in ("evenly", "worst", "best", "median", "runs-differ")}
    pictures |= {"pseudo-labels.png", "embeddings-supervised.png", "embeddings-pgvcl.png"}
    assert names == pictures | {"clip-case04.mp4", "clip-new.mp4"}
    assert all(read_image(folder / name).std() > 1 for name in pictures)


def test_command_without_frames_writes_no_picture(
    runs: Runs, footage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-o", "r.html", "--videos", str(footage), "--figures", "figures", "--no-frames"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["suture", "report", str(runs.pgvcl), *options])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out.splitlines()[-3:-1] == ["Report: r.html", "Figures: figures"]
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["embeddings-pgvcl.png"]
    page = (tmp_path / "r.html").read_text()
    assert not any(text in page for text in ("data:image", "data:video", "<img src", "<video"))
    assert viewers(page) == {}
    for text in ('class="scatter"', 'class="area"', 'class="confusion"', "IoU of a frame over", "Label these next"):
        assert text in page


def test_paths(runs: Runs, console: Console) -> None:
    assert report_path([runs.supervised]) == runs.supervised / "report.html"
    assert report_path([runs.supervised, runs.pgvcl]) == runs.supervised.parent / "report.html"
    with pytest.raises(UserError, match="is a folder"):
        report_path([runs.supervised], runs.supervised)
    with pytest.raises(UserError, match="masks"):
        report_path([runs.supervised], runs.data / "masks/report.html")
    with pytest.raises(UserError, match="videos"):
        write_report([runs.supervised], figures=runs.data / "videos/figures", console=console)


def test_without_masks_of_new_videos(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.unmasked], tmp_path / "report.html", console=console).read_text()
    for text in ("No new video with masks was scored", "labelled training frames", "Completion was not measured"):
        assert text in page
    confidence = re.findall(r"<title>unmasked, frames to the nearest labelled one [\d.]+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, confidence)) <= 100, "in percent"
    assert "predictions" not in viewers(page)
    pictures = viewers(page)["next"]
    assert [panel["kind"] for panel in pictures["panels"]] == ["prediction"]
    videos = {item["video"] for item in pictures["items"]}
    assert videos
    assert videos <= {"case01a", "case01b", "case02"}, "none for scores"
    assert page.count('class="area"') >= 2


def test_given_videos_need_a_finished_model_and_names_of_their_own(
    runs: Runs, footage: Path, tmp_path: Path, copy_run: Copy, context_of: Open
) -> None:
    run = copy_run(runs.supervised, "half")
    (run / "model.json").unlink()
    with pytest.raises(UserError, match="needs a finished model"):
        write_report([run], tmp_path / "report.html", videos=[footage])
    with pytest.raises(UserError, match="Several videos are called case04"):
        _ = context_of(runs.supervised, further_videos=read_footage([runs.data / "videos" / "case04.mp4"])).footage


def test_unfinished_run(runs: Runs, tmp_path: Path, copy_run: Copy, console: Console) -> None:
    run = copy_run(runs.pgvcl, "half")
    for file in ("model.json", "model.safetensors", "metrics.json", "stages/3-contrast/done.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages/4-finetune")
    page = write_report([run, runs.supervised], tmp_path / "report.html", False, console).read_text()
    sentence = "Not finished: half. Unfinished parts are left out."
    assert sentence in page
    assert console.export_text().splitlines().count(sentence) == 1
    assert ">at step 2, not done yet<" in page
    assert page.count(">not done yet<") == 1


def test_missing_sets_are_remarked() -> None:
    assert [one.partition(".")[0] for one in unmeasured(["val"])] == [
        "No test video was scored",
        "Completion was not measured: it is off, or labelled videos have no other frame with a mask",
    ]
    assert unmeasured(["completion"])[0].startswith("No new video with masks was scored")
    assert unmeasured(["test", "completion"]) == []


def test_score_that_is_null_is_a_dash(runs: Runs, copy_run: Copy) -> None:
    def clear(metrics: dict[str, Any]) -> None:
        metrics["test"]["overall"] = dict.fromkeys(metrics["test"]["overall"]) | {"frames": 14}

    (row,) = primary_scores(read_runs([copy_run(runs.supervised, "run", metrics=clear)]), ["test"])
    assert [cell.text for cell in row["cells"]] == ["–"]


def test_runs_without_stages(runs: Runs, copy_run: Copy) -> None:
    """Stages are large, so that people remove them; then the time of training is not known."""
    run = copy_run(runs.pgvcl, "kept")
    shutil.rmtree(run / "stages")
    assert run_facts(read_runs([run]))[0]["time in finished stages"] == "not known"
    assert scores_table([run]).row_count > 0
    (run / "metrics.json").unlink()
    with pytest.raises(UserError, match="has no trained step yet"):
        read_runs([run])


@pytest.mark.parametrize("name", ["metrics.json", "data.json", "environment.json", "stages/1-pretrain/done.json"])
def test_damaged_file_is_named(name: str, runs: Runs, copy_run: Copy) -> None:
    run = copy_run(runs.pgvcl, "changed")
    (run / name).write_text('{"test": 3}')
    with pytest.raises(UserError, match=name):
        read_runs([run])


def test_class_that_scores_leave_out_is_in_no_truth(runs: Runs, copy_run: Copy, context_of: Open) -> None:
    run = copy_run(runs.supervised, "run", metrics=lambda metrics: metrics["test"].update(left_out=["liver"]))
    gallery = prediction_pictures(context_of(run))
    assert gallery is not None
    classes = {int(number) for ids in gallery.panels[0].masks.values() for number in set(ids.ravel())}
    assert 0 in classes
    assert 1 not in classes


def test_missing_data(runs: Runs, footage: Path, tmp_path: Path, copy_run: Copy, console: Console) -> None:
    run = copy_run(runs.supervised, "orphan")
    move_data(run, tmp_path / "gone")
    page = write_report([run], tmp_path / "report.html", console=console, videos=[footage]).read_text()
    assert "The data of orphan could not be read" in page
    assert str(tmp_path) not in page
    assert {name: {item["video"] for item in one["items"]} for name, one in viewers(page).items()} == {"next": {"new"}}
    assert 'class="timeline"' in page


def test_data_that_changed_since_training(
    runs: Runs, tmp_path: Path, copy_run: Copy, context_of: Open, console: Console
) -> None:
    data = shutil.copytree(runs.data, tmp_path / "data")
    table = data / "dataset.yaml"
    table.write_text(table.read_text().replace("name: liver", "name: spleen"))
    run = copy_run(runs.pgvcl, "changed")
    move_data(run, data)
    assert context_of(run).dataset is None
    assert "(liver is gone and spleen is new)" in console.export_text()
    longer = copy_run(runs.supervised, "longer", data=lambda data: data["videos"]["case02"].update(frames=15))
    assert context_of(longer).dataset is None
    assert "does not have 15 frames" in console.export_text()
    with pytest.raises(UserError, match="differ in the lengths of videos"):
        read_runs([runs.supervised, longer])


def test_runs_that_cannot_stand_side_by_side(
    runs: Runs, tmp_path: Path, copy_run: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy_run(runs.supervised, "other", data=lambda data: data.update(dataset="another"))
    with pytest.raises(UserError, match="differ in dataset"):
        read_runs([runs.supervised, other])
    with pytest.raises(UserError, match="not a run folder"):
        read_runs([tmp_path])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^other/\.\./other is given twice"):
        read_runs([Path("other/../other"), Path("other")])


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
        ({"data": _other_file}, r"training videos 3 \(\w+\) instead of 3 "),
        ({"data": _fewer_labels}, r"labelled frames 8 \(\w+\) instead of 9 "),
        ({"metrics": _fewer_masks}, r"test on \d+ frames of"),
    ],
)
def test_differences_between_runs_are_remarked(
    runs: Runs, copy_run: Copy, changes: dict[str, Any], remark: str
) -> None:
    text = remarks(runs.supervised, copy_run(runs.supervised, "changed", **changes))
    assert re.search(f"changed is not comparable with supervised: {remark}", text)
    assert "differences between runs may be chance" in text
    assert "may be chance" not in remarks(runs.supervised), "there is nothing to compare"


def test_unequal_training_is_remarked(runs: Runs, copy_run: Copy) -> None:
    run = copy_run(runs.supervised, "longer")
    (done,) = run.glob("stages/*/done.json")
    record = json.loads(done.read_text())
    done.write_text(json.dumps(record | {"steps": 2 * record["steps"]}))
    steps = f"supervised steps {2 * record['steps']} instead of {record['steps']}"
    assert f"longer is not comparable with supervised: {steps}." in remarks(runs.supervised, run)


def test_known_patients_are_remarked(runs: Runs, copy_run: Copy) -> None:
    def join(metrics: dict[str, Any]) -> None:
        metrics["test"]["cases"] = {"case02": metrics["test"]["cases"]["case04"]}

    assert "trained and tested on videos of case02" in remarks(copy_run(runs.supervised, "known", metrics=join))


def test_scores_of_few_frames_are_remarked(runs: Runs, copy_run: Copy) -> None:
    def set_frames(metrics: dict[str, Any], frames: int) -> None:
        for scores in metrics.values():
            scores["overall"]["frames"] = 100
            scores["primary"]["interval"] = [0.1, 0.2]
        metrics["test"]["overall"]["frames"] = frames

    assert "rest on little" not in remarks(copy_run(runs.supervised, "many", metrics=lambda one: set_frames(one, 100)))
    few = copy_run(runs.supervised, "few", metrics=lambda metrics: set_frames(metrics, 99))
    assert "Scores rest on little: new videos (test) on 99 frames of 1 video" in remarks(few)
