"""The report as a file: what is in it, what never is, and what it says of runs that lack something."""

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tiny_runs import Runs

from suture.cli import main
from suture.core.errors import UserError
from suture.data.images import read_image
from suture.reports.report import write_report
from suture.reports.scores_section import scores_table


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
    scores = page[: page.index('<section id="confusion">')]
    assert "Every run is one training with one seed" in scores
    assert "<b>" not in scores, "no run is marked as the best"
    for stage in ("train", "pretrain", "contrast", "finetune"):
        assert f"{stage}: loss" in page
    for number in (0, 1):
        assert f'<path class="line run{number}" d="M0 4h30"/>' in page, "the legend of curves shows their dashes"
    assert "case04" in page
    assert 'class="cut"' in page
    assert page.count('class="labelled"') == 9  # three training videos of fourteen frames, every sixth labelled
    viewers = content(page)["viewers"]
    assert [panel["title"] for panel in viewers["predictions"]["panels"]] == ["truth", "supervised", "pgvcl"]
    groups = [item["groups"] for item in viewers["predictions"]["items"]]
    assert [group[0] for group in groups[:9]] == ["worst"] * 3 + ["median"] * 3 + ["best"] * 3
    assert sum("evenly" in group for group in groups) == 4
    worst, best = viewers["predictions"]["items"][0], viewers["predictions"]["items"][8]
    assert sum(worst["scores"][1:]) < sum(best["scores"][1:])
    titles = [panel["title"] for panel in viewers["pseudo"]["panels"]]
    assert titles == ["truth", "pseudo label of pgvcl", "supervised, final", "pgvcl, final"]
    assert "5 frames of new videos that together show" in page
    assert "before contrast (after pretrain)" in page
    assert "starting weights" in page
    assert page.count('class="scatter"') == 4
    assert page.count("data:video/mp4;base64,") == 1
    assert "case04, frames 0 to 13: frame, truth, supervised, pgvcl" in page
    assert "± " in page, "deviations over videos"


def test_nothing_from_outside_and_no_path(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.pgvcl], tmp_path / "one.html", console=console).read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"url\((?!['\"]?data:)|@import|https?://", page)
    assert "patient-doe" not in page
    assert str(tmp_path) not in page


def test_without_frames_there_is_no_picture(runs: Runs, tmp_path: Path, console: Console) -> None:
    page = write_report([runs.supervised, runs.pgvcl], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "data:image" not in page
    assert "data:video" not in page
    assert "<img src" not in page
    assert "<video" not in page
    assert content(page)["viewers"] == {}
    assert 'class="scatter"' in page, "dots are no picture of a patient"
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
    assert "No new video has masks: how good" in page
    assert "labelled training frames that together show" in page
    assert "Completion was not measured" in page
    assert "only their confidence is known" in page
    assert "Confidence over the distance" in page
    sure = re.findall(r"<title>unmasked, frames to the nearest labelled one [\d.]+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, sure)) <= 100, "in percent"
    viewers = content(page)["viewers"]
    assert "predictions" not in viewers
    assert [panel["kind"] for panel in viewers["footage"]["panels"]] == ["prediction"]
    assert {item["video"] for item in viewers["footage"]["items"]} == {"case03", "case04"}
    assert "Label these next" in page
    assert page.count('class="area"') >= 2
    assert "frames 0 to 13: frame, unmasked" in page


def test_videos_that_were_given(runs: Runs, footage: Path, tmp_path: Path, console: Console) -> None:
    path = write_report(
        [runs.supervised], tmp_path / "r.html", console=console, videos=[footage, footage / "case04.mp4"]
    )
    page = path.read_text()
    viewers = content(page)["viewers"]
    named = {item["video"] for item in viewers["footage"]["items"]}
    assert named == {"case04 (2)", "case04 (3)"}, "the dataset's own case04 is another video"
    assert "<b>case04 (2)</b> over time" in page
    assert all(kind in page for kind in ("share of the view", "confidence: ", "entropy of", "consistency: "))
    drawn = re.findall(r"<title>supervised, frame \d+: ([\d.]+)</title>", page)
    assert 10 < max(map(float, drawn)) <= 100, "curves are in percent, as the table above them"
    assert "doe-new" not in page


def test_videos_without_frames(runs: Runs, footage: Path, tmp_path: Path, console: Console) -> None:
    path = write_report([runs.supervised], tmp_path / "r.html", frames=False, console=console, videos=[footage])
    page = path.read_text()
    assert "Label these next" in page
    assert 'class="area"' in page
    assert "data:image" not in page
    assert "data:video" not in page


def test_videos_when_the_data_is_gone(runs: Runs, footage: Path, tmp_path: Path, console: Console) -> None:
    run = without_data(runs, tmp_path)
    page = write_report([run], tmp_path / "r.html", console=console, videos=[footage]).read_text()
    assert {item["video"] for item in content(page)["viewers"]["footage"]["items"]} == {"case04"}


def test_videos_that_cannot_be_looked_at(runs: Runs, footage: Path, tmp_path: Path, console: Console) -> None:
    with pytest.raises(UserError, match="does not exist"):
        write_report([runs.supervised], tmp_path / "r.html", console=console, videos=[tmp_path / "none"])
    run = copied(runs.supervised, tmp_path, "half")
    (run / "model.json").unlink()
    with pytest.raises(UserError, match="needs a finished model"):
        write_report([run], tmp_path / "r.html", console=console, videos=[footage])
    assert not (tmp_path / "r.html").exists()


def test_figures(runs: Runs, tmp_path: Path, console: Console) -> None:
    folder = tmp_path / "figures"
    write_report([runs.supervised, runs.pgvcl], tmp_path / "r.html", console=console, figures=folder)
    names = {file.name for file in folder.iterdir()}
    assert names >= {
        "comparison-evenly.png",
        "comparison-worst.png",
        "comparison-best.png",
        "pseudo-labels.png",
        "embeddings-supervised.png",
        "embeddings-pgvcl.png",
        "side-by-side.mp4",
    }
    for name in names - {"side-by-side.mp4"}:
        assert read_image(folder / name).std() > 1, name
    with pytest.raises(UserError, match="not an empty folder"):
        write_report([runs.supervised], tmp_path / "r.html", console=console, figures=folder)


def test_figures_without_frames_are_dots_only(runs: Runs, tmp_path: Path, console: Console) -> None:
    folder = tmp_path / "figures"
    write_report([runs.supervised], tmp_path / "r.html", frames=False, console=console, figures=folder)
    assert {file.name for file in folder.iterdir()} == {"embeddings-supervised.png"}


def test_run_that_is_not_finished(runs: Runs, tmp_path: Path) -> None:
    run = copied(runs.pgvcl, tmp_path, "half")
    for file in ("model.json", "model.safetensors", "metrics.json", "stages/3-contrast/done.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages/4-finetune")
    console = Console(file=io.StringIO(), record=True)
    page = write_report([run, runs.supervised], tmp_path / "r.html", console=console).read_text()
    assert "Not finished: half. What is not done yet is left out." in page
    assert console.export_text().splitlines().count("Not finished: half. What is not done yet is left out.") == 1
    assert ">at step 2, not done yet<" in page
    assert page.count(">not done yet<") == 1
    assert [panel["title"] for panel in content(page)["viewers"]["predictions"]["panels"]] == ["truth", "supervised"]
    alone = write_report([run], tmp_path / "alone.html", console=console).read_text()
    assert "half cannot be scored yet, as training is not finished." in alone
    assert "in finished stages" in alone
    assert "No new video has masks" not in alone
    assert "Completion was not measured" not in alone


def test_scores_of_other_splits_than_usual(runs: Runs, tmp_path: Path, console: Console) -> None:
    """Validation alone may have been looked at; and a split may keep nothing back."""
    run = copied(runs.supervised, tmp_path, "run")
    metrics, data = (json.loads((run / name).read_text()) for name in ("metrics.json", "data.json"))
    del metrics["test"]
    (run / "metrics.json").write_text(json.dumps(metrics))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "No test video was scored." in page
    del metrics["val"]
    for video in data["videos"].values():
        video["split"] = "train"
    (run / "metrics.json").write_text(json.dumps(metrics))
    (run / "data.json").write_text(json.dumps(data))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "The split keeps no video for validation or test: how good the masks of new videos are" in page
    assert "No test video was scored" not in page


def test_a_class_without_scores_has_dashes(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "run")
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["test"]["overall"] = dict.fromkeys(metrics["test"]["overall"]) | {"frames": 14}
    for one in metrics["test"]["classes"].values():
        one |= {"iou": None, "false_presence": None}
    (run / "metrics.json").write_text(json.dumps(metrics))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert '<span class="big">–</span>' in page
    assert '<td class="bar run0" style="--share: 0%">–</td>' in page


def test_run_without_a_single_step(runs: Runs, tmp_path: Path, console: Console) -> None:
    """Killed while its frames were stored: there is nothing to say of it."""
    run = copied(runs.pgvcl, tmp_path, "begun")
    for file in ("model.json", "model.safetensors", "metrics.json"):
        (run / file).unlink()
    shutil.rmtree(run / "stages")
    with pytest.raises(UserError, match="has not a single step of training yet: go on with `suture train`"):
        write_report([run], console=console)
    assert not (run / "report.html").exists()


def test_a_scored_run_whose_checkpoints_were_removed(runs: Runs, tmp_path: Path, console: Console) -> None:
    """They are large: its scores can still be told, but not how long it took."""
    run = copied(runs.pgvcl, tmp_path, "kept")
    shutil.rmtree(run / "stages")
    page = write_report([run, runs.supervised], tmp_path / "r.html", frames=False, console=console).read_text()
    assert page.count(">not known<") == 1
    assert scores_table([run]).row_count > 0


@pytest.mark.parametrize("name", ["metrics.json", "data.json", "environment.json", "stages/1-pretrain/done.json"])
def test_a_record_that_was_changed_is_one_sentence(name: str, runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.pgvcl, tmp_path, "changed")
    (run / name).write_text('{"test": 3}')
    with pytest.raises(UserError, match=rf"{name} is not as Suture wrote it"):
        write_report([run], console=console)


def test_a_time_that_is_not_known_is_said_to_be_so(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "untimed")
    (done,) = run.glob("stages/*/done.json")
    done.write_text(json.dumps(json.loads(done.read_text()) | {"seconds": None}))
    page = write_report([run], frames=False, console=console)
    assert "not known" in page.read_text(encoding="utf-8")


def test_scores_of_other_classes_are_told(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "mixed")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(data | {"classes": data["classes"][1:]}))
    with pytest.raises(UserError, match=r"in metrics\.json are of 10 classes, but data\.json has 9"):
        write_report([run], console=console)


def test_a_class_that_the_scores_leave_out_is_told_and_in_no_truth(
    runs: Runs, tmp_path: Path, console: Console
) -> None:
    """The note of every set is told, once; the pictures are of test videos here."""
    run = copied(runs.supervised, tmp_path, "run")
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["val"]["notes"] = ["gauze left out of validation: no training video shows it"]
    metrics["test"]["left_out"] = ["liver"]
    (run / "metrics.json").write_text(json.dumps(metrics))
    for folder, note, liver in ((runs.supervised, 0, True), (run, 1, False)):
        page = write_report([folder], tmp_path / f"{note}.html", console=console).read_text()
        assert page.count("; gauze left out of validation: no training video shows it.") == note
        truths = [item["masks"][0] for item in content(page)["viewers"]["predictions"]["items"]]
        shown = {int(one, 36) % 256 for truth in truths for one in truth.split()}
        assert (0 in shown, 1 in shown) == (True, liver)


def test_neither_page_nor_figures_go_among_the_data(runs: Runs, console: Console) -> None:
    data = runs.supervised.parents[1] / "data"
    with pytest.raises(UserError, match="has its masks, and would become one of them"):
        write_report([runs.supervised], data / "masks/report.html", console=console)
    with pytest.raises(UserError, match="has its videos, and would become one of them"):
        write_report([runs.supervised], figures=data / "videos/figures", console=console)
    assert not list(data.rglob("report.html"))


def without_data(runs: Runs, tmp_path: Path) -> Path:
    """A run whose dataset is not there any more."""
    run = copied(runs.supervised, tmp_path, "orphan")
    config = run / "config.yaml"
    config.write_text(re.sub("root: .*", f"root: {tmp_path / 'gone'}", config.read_text()))
    return run


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_told_first(runs: Runs, tmp_path: Path, console: Console) -> None:
    (tmp_path / "kept").mkdir(mode=0o555)
    with pytest.raises(UserError, match=r"page\.html cannot be written: name a file with -o"):
        write_report([runs.supervised], tmp_path / "kept" / "page.html", console=console)


def test_data_that_is_gone(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = without_data(runs, tmp_path)
    page = write_report([run], tmp_path / "r.html", console=console).read_text()
    assert "The data of orphan could not be read" in page
    assert str(tmp_path) not in page
    assert content(page)["viewers"] == {}
    assert 'class="timeline"' in page


def test_labels_that_have_other_classes_by_now(runs: Runs, tmp_path: Path) -> None:
    run = copied(runs.pgvcl, tmp_path, "changed")
    data = shutil.copytree(runs.supervised.parents[1] / "data", tmp_path / "data")
    config = run / "config.yaml"
    config.write_text(re.sub("root: .*", f"root: {data}", config.read_text()))
    table = data / "dataset.yaml"
    table.write_text(table.read_text().replace("name: liver", "name: spleen"))
    said = io.StringIO()
    page = write_report([run], tmp_path / "r.html", console=Console(file=said, width=400)).read_text()
    assert "The data of changed could not be read" in page
    assert content(page)["viewers"] == {}
    assert re.search(r"other classes than .* \(liver is now spleen\); restore the class table", said.getvalue())


def test_videos_that_changed_since_training(runs: Runs, tmp_path: Path) -> None:
    run = copied(runs.supervised, tmp_path, "longer")
    record = json.loads((run / "data.json").read_text())
    record["videos"]["case02"]["frames"] += 1
    (run / "data.json").write_text(json.dumps(record))
    said = io.StringIO()
    write_report([run], tmp_path / "r.html", frames=False, console=Console(file=said, width=400))
    assert "has 14 frames, expected 15 as in training" in said.getvalue()
    with pytest.raises(UserError, match=r"different videos of the name case02 \(14 and 15 frames\)"):
        write_report([runs.supervised, run], tmp_path / "r.html")


def test_frames_that_were_excluded_since_training(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.pgvcl, tmp_path, "before")
    record = json.loads((run / "data.json").read_text())
    excluded = record["videos"]["case02"]["excluded"]
    record["videos"]["case02"]["excluded"] = [] if excluded else [1]
    (run / "data.json").write_text(json.dumps(record))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "others now than when before was trained: its pseudo labels are left out." in page


def test_other_files_of_the_same_videos_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "encoded")
    record = json.loads((run / "data.json").read_text())
    record["videos"]["case02"]["sha256"] = "0" * 64
    (run / "data.json").write_text(json.dumps(record))
    page = write_report([runs.supervised, run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "The files of case02 are others in encoded than in supervised." in page


def test_runs_that_cannot_stand_side_by_side(
    runs: Runs, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(runs.supervised, tmp_path, "other")
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(data | {"dataset": "another"}))
    with pytest.raises(UserError, match="differ in dataset"):
        write_report([runs.supervised, run], tmp_path / "r.html", console=console)
    with pytest.raises(UserError, match="supervised is given twice"):
        write_report([runs.pgvcl, runs.supervised, runs.supervised], tmp_path / "r.html", console=console)
    for folder in (tmp_path, Path("/")):
        with pytest.raises(UserError, match="not a run folder"):
            write_report([folder], tmp_path / "r.html", console=console)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^other/\.\./other is given twice"):
        write_report([Path("other/../other"), Path("other")], Path("r.html"), console=console)
    (tmp_path / "videos").mkdir()
    with pytest.raises(UserError, match=r"^videos is not a run folder"):  # a path as it was given
        write_report([Path("videos")], Path("r.html"), console=console)


def test_other_labels_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "fewer")
    data = json.loads((run / "data.json").read_text())
    data["labelled"].popitem()
    (run / "data.json").write_text(json.dumps(data))
    page = write_report([runs.supervised, run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "fewer learnt from other labelled frames than supervised" in page
    assert "a difference between runs may be chance" in page
    assert 'class="diff' in page
    assert "gain" not in page


def test_scores_by_other_masks_are_remarked(runs: Runs, tmp_path: Path) -> None:
    run, told = copied(runs.supervised, tmp_path, "before"), io.StringIO()
    metrics = json.loads((run / "metrics.json").read_text())
    test = metrics["test"]
    test["overall"]["frames"] -= 1
    next(iter(test["videos"].values()))["frames"] -= 1
    (run / "metrics.json").write_text(json.dumps(metrics))
    console = Console(file=told, width=400)
    page = write_report([runs.supervised, run], tmp_path / "r.html", frames=False, console=console).read_text()
    for said in (page, told.getvalue()):
        assert re.search(
            r"before is not scored on what supervised is: test on \d+ frames of .* instead of \d+ frames", said
        )
        assert "suture evaluate RUN" in said
    assert "completion on" not in told.getvalue()


def test_unequal_training_is_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "longer")
    (done,) = run.glob("stages/*/done.json")
    record = json.loads(done.read_text())
    done.write_text(json.dumps(record | {"steps": 2 * record["steps"]}))
    page = write_report([runs.supervised, run], tmp_path / "r.html", frames=False, console=console).read_text()
    steps = record["steps"]
    assert f"longer was trained otherwise than supervised: supervised steps {2 * steps} instead of {steps}." in page


def test_known_patients_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "sequences")
    data = json.loads((run / "data.json").read_text())
    data["videos"]["case04"]["case"] = "case02"
    (run / "data.json").write_text(json.dumps(data))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "trained and tested on videos of case02" in page
    assert "may be chance" not in page, "there is nothing to compare"


def test_scores_that_rest_on_little_are_remarked(runs: Runs, tmp_path: Path, console: Console) -> None:
    def page() -> str:
        return write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()

    run = copied(runs.supervised, tmp_path, "little")
    metrics = json.loads((run / "metrics.json").read_text())
    frames = {which: metrics[which]["overall"]["frames"] for which in metrics}
    assert (
        f"Scores rest on little: new videos (test) on {frames['test']} frames of 1 video, new videos (validation) on "
        f"{frames['val']} frames of 1 video and completion on {frames['completion']} frames of 3 videos of 2 cases; on "
        "other videos they may be quite different."
    ) in page()
    for scores in metrics.values():
        scores["overall"]["frames"] = 100
        scores["primary"]["interval"] = [0.1, 0.2]
    (run / "metrics.json").write_text(json.dumps(metrics))
    assert "rest on little" not in page()
    metrics["test"]["overall"]["frames"] = 99
    (run / "metrics.json").write_text(json.dumps(metrics))
    assert "Scores rest on little: new videos (test) on 99 frames of 1 video; on other videos" in page()


def test_what_was_not_asked_for_is_not_blamed_on_the_data(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = copied(runs.supervised, tmp_path, "brief")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("completion: true", "completion: false"))
    metrics = json.loads((run / "metrics.json").read_text())
    del metrics["completion"]
    (run / "metrics.json").write_text(json.dumps(metrics))
    page = write_report([run], tmp_path / "r.html", frames=False, console=console).read_text()
    assert "Completion was not measured: evaluation.completion is off." in page


def test_command(
    runs: Runs, footage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "report",
        str(runs.unmasked),
        "-o",
        "r.html",
        "--videos",
        str(footage),
        "--figures",
        "figures",
        "--no-frames",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["suture", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out.splitlines() == ["Report: r.html", "Figures: figures"]
    assert (tmp_path / "r.html").exists()
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["embeddings-unmasked.png"]
