"""Every command, thin: parse, call, print."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from suture import __version__
from suture.core.errors import UserError, describe_os_error, is_full
from suture.core.io import require_unlocked, suffix_of, validate_folder_path
from suture.core.signals import end, hearing
from suture.core.text import listed, number, reason
from suture.core.threads import use_passive_openmp_wait
from suture.training.presets import presets

use_passive_openmp_wait()  # before torch is imported, which the commands do themselves

app = typer.Typer(
    help="Label a few frames, segment every video.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console()
err = Console(stderr=True)

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting of docs/configuration.md; may be given several times.",
    ),
]
Source = Annotated[str, typer.Option(help="How the folder is read: auto, folder, endovis18, cadis or vocalfolds.")]
Options = Annotated[list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the source.")]
COMMAND_LINE = "the command line"
"""Where a mistaken setting was said."""
_NOTHING_SCORED = "Nothing was scored: no video that is to be scored has masks."


# What the commands import takes seconds: a slip in a path is told before, by these callbacks.


def _refuse_missing(what: str) -> Callable[[Any], Any]:
    def refuse(said: Any) -> Any:
        for path in said if isinstance(said, list) else [said]:
            if path is not None and not os.path.exists(path):
                raise UserError(f"{path} does not exist: expected {what}.")
        return said

    return refuse


def _existing(what: str) -> Any:
    """An argument whose paths must be there."""
    return typer.Argument(help=f"{what[0].upper()}{what[1:]}.", callback=_refuse_missing(what))


def _refuse_file(said: Any) -> Any:
    if said is not None:
        validate_folder_path(said)
    return said


def _refuse_in_use(folder: Path) -> None:
    """Not where torchrun or srun started others, of which the first may have taken the folder for all of them."""
    if all(int(os.environ.get(count, 1)) == 1 for count in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")):
        require_unlocked(folder)


Dataset = Annotated[Path, _existing("a folder of videos or frames, a video file, or a dataset")]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Settings to start from: {', '.join(presets())}."),
]


def _version(value: bool) -> None:
    if value:
        out.print(f"suture {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of mistakes.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def synthetic(
    folder: Annotated[Path, typer.Argument(help="Where to write it; must not exist yet.")],
    cases: Annotated[int, typer.Option(min=1, help="Operations; some come as several videos.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Frames per video.")] = 100,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT.")] = "256x256",
    fps: Annotated[float, typer.Option(help="Frames per second.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Another number renders other video.")] = 0,
    container: Annotated[Literal["mp4", "png"], typer.Option(help="Video files, or folders of frames.")] = "mp4",
) -> None:
    """Generate surgical-looking video with masks, to try everything without data."""
    from pydantic import ValidationError

    from suture.core.workers import cores
    from suture.data.synthetic.scenario import SyntheticSettings
    from suture.data.synthetic.write_synthetic import write_synthetic

    try:
        width, height = (int(side) for side in size.lower().split("x"))
    except ValueError:
        raise UserError(f"--size is {size}, expected WIDTHxHEIGHT such as 256x256.") from None
    try:
        settings = SyntheticSettings(seed=seed, cases=cases, frames=frames, width=width, height=height, fps=fps)
    except ValidationError as error:
        wrong = "; ".join(": ".join([*map(str, one["loc"]), reason(one)]) for one in error.errors())
        raise UserError(f"These settings make no video: {wrong}.") from None
    write_synthetic(folder, settings, container=container, workers=cores())
    _say(out, f"Written: {folder}. Next: suture check {folder}")


@app.command()
def check(
    path: Dataset,
    source: Source = "auto",
    option: Options = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Draft dataset.yaml, every guess marked.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over an existing dataset.yaml; what it says is kept.")
    ] = False,
    pictures: Annotated[Path | None, typer.Option(help="Draw each video's view and shots into this folder.")] = None,
) -> None:
    """Say what is here, and what would ruin a night of training.

    Exit code 2 if something would; with --write, what the draft itself asks does not count.
    """
    from suture.checks.check import FEW, CheckReport
    from suture.checks.check import check as check_dataset
    from suture.checks.draft import kept_aside, write_draft
    from suture.checks.problems import ASKED
    from suture.core.progress import ProgressBar
    from suture.data.dataset_file import FILE_NAME
    from suture.data.datasets import load_dataset

    options = _options(option)  # a slip is told before anything is drafted
    if pictures is not None:
        from suture.checks.view_pictures import require_free_folder, write_pictures

        require_free_folder(pictures)  # told before all is read
    if write:
        kept = (
            " What it said before is kept, but not its comments, except that a guess stays one."
            if (path / FILE_NAME).exists()
            else ""
        )
        drafted = write_draft(path, force=force)
        _say(err, f"Drafted {drafted}: read it, answer its questions, then check again.{kept}")
    dataset = load_dataset(path, source, **options)

    def show(quick: CheckReport) -> None:
        if quick.summary.frames > FEW and not json:
            quick.print(err)

    report = check_dataset(dataset, progress=not json, on_quick=show)
    if json:
        out.print_json(data=report.to_json())
    else:
        report.print(out)
    if write and (sentence := kept_aside(report.summary, path / FILE_NAME)):
        _say(err, sentence)
    if pictures is not None:
        with ProgressBar() as bar:
            task = bar.add_task("Drawing views and shots", total=len(dataset.videos))
            drawn = write_pictures(dataset, pictures, progress=lambda videos: bar.advance(task, videos))
        _say(err, f"{len(drawn)} pictures in {pictures}")
    fatal = {problem.code for problem in report.problems if problem.severity == "fatal"}
    if fatal - ({ASKED} if write else set()):
        raise typer.Exit(2)


@app.command()
def select(
    path: Dataset,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the frames go.")],
    every: Annotated[int | None, typer.Option(help="One frame in so many of each video.")] = None,
    ratio: Annotated[float | None, typer.Option(help="This share of all frames, such as 0.05.")] = None,
    budget: Annotated[int | None, typer.Option(help="So many frames in all.")] = None,
    list: Annotated[Path | None, typer.Option(help="The frames of this file: VIDEO INDEX, one per line.")] = None,
    source: Source = "auto",
    option: Options = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Choose the frames to label, by --every, --ratio, --budget or --list, and write them out."""
    from suture.annotate.select import select as select_frames
    from suture.checks.problems import Evidence, unread_masks
    from suture.data.datasets import load_dataset
    from suture.data.datasets.folder import place_of_new_masks
    from suture.data.labelling import from_list

    dataset = load_dataset(path, source, **_options(option))
    chosen = select_frames(dataset, output, every=every, ratio=ratio, budget=budget, listed=list, force=force)
    masked = sum(len(video.with_mask) for video in dataset)
    left = f", none of the {number(masked, 'frame')} that have a mask" if masked and list is None else ""
    if list is not None and (excluded := from_list(list, dataset).count - chosen.count):
        left = f"; {number(excluded, 'frame')} of {list} left out, as excluded"
    if list is not None and (again := sum(len({*chosen[video.id]} & {*video.with_mask}) for video in dataset)):
        left += f"; {number(again, 'frame')} of these with a mask already: a new one must take its place"
    left += "; there are no more" if budget is not None and chosen.count < budget else ""
    for note in dataset.notes:
        _say(err, note)
    for problem in unread_masks(Evidence(dataset, {}, False)):
        _say(err, f"{problem.what}; {problem.fix}.")
    _say(out, f"{number(chosen.count, 'frame')} of {number(len(chosen.frames), 'video')} in {output}{left}")
    folder = path if path.is_dir() else path.parent
    _say(out, f"Next: label them; their masks, or the labelling tool's export, go into {place_of_new_masks(folder)}")


@app.command()
def train(
    target: Annotated[Path | None, _existing("a config file, or a dataset's folder")] = None,
    run: Annotated[
        Path | None,
        typer.Option("-o", "--run", help="The run folder; else runs/DATASET-METHOD-SEED.", callback=_refuse_file),
    ] = None,
    preset: Preset = None,
    set: Overrides = None,
) -> None:
    """Train a method on a dataset; started again, it goes on where it was.

    The method is stitch, unless --set method=NAME names another:
    supervised, twice, strong, pgvcl, pixpro, selftraining, dmt, uamt or unimatch.
    """
    with _waiting():
        from suture.training.config import Config, load_config
        from suture.training.run_folder import default_folder

        def look(config: Config) -> None:
            _refuse_in_use(run or default_folder(config))

        config = load_config(target, preset, set or [], origin=COMMAND_LINE, look=look)  # refuses a mistaken setting
        from suture.reports.scores_section import scores_table
        from suture.training.train import train as train_run

    folder = run or default_folder(config)
    metrics = train_run(config, folder, err)
    if _first():
        if metrics:
            _show_scores(scores_table([folder]), [metrics])
        else:
            _say(out, _NOTHING_SCORED)
        _say(out, f"Run: {folder}")


@app.command()
def evaluate(run: Annotated[Path, _existing("a run folder")], set: Overrides = None) -> None:
    """Score a finished run again, and print its scores."""
    from suture.training.overrides import validate_scoring_overrides

    validate_scoring_overrides(set or [], COMMAND_LINE)
    _refuse_in_use(run)
    with _waiting():
        from suture.reports.scores_section import scores_table
        from suture.training.train import evaluate_run

    metrics = evaluate_run(run, set or [], err, origin=COMMAND_LINE)
    if not _first():
        return
    if metrics:
        _show_scores(scores_table([run], [metrics]), [metrics])
    else:
        _say(out, _NOTHING_SCORED)


@app.command()
def report(
    runs: Annotated[list[Path], _existing("one run folder, or several to set side by side")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="The HTML file; else report.html in the run folder, of several runs in the folder that holds them.",
        ),
    ] = None,
    videos: Annotated[
        list[Path] | None,
        typer.Option(
            help="Videos without truth to look at: a file or folder; may be given several times.",
            callback=_refuse_missing("videos to look at, a file or folder"),
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures of a paper (PNG, MP4) into this new folder.")
    ] = None,
    no_frames: Annotated[bool, typer.Option("--no-frames", help="Leave every picture of a patient out.")] = False,
) -> None:
    """Write one HTML page about runs, and print their scores."""
    from suture.reports.place import report_path

    report_path(runs, output)  # refuses what is no place for it
    if figures is not None:
        from suture.checks.view_pictures import require_free_folder

        require_free_folder(figures)
    with _waiting():
        from suture.reports.report import write_report
        from suture.reports.scores_section import scores_table
        from suture.training.run_folder import Run

    path = write_report(runs, output, frames=not no_frames, console=err, videos=videos or [], figures=figures)
    table = scores_table(runs)
    if table.row_count:
        _show_scores(table, [Run(run).metrics or {} for run in runs])
    _say(out, f"Report: {path}")
    if figures is not None:
        _say(out, f"Figures: {figures}")


@app.command()
def export(
    run: Annotated[Path, _existing("the folder of a finished run")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The ONNX file, else model.onnx in the run folder; .md: the card alone."),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Size of the frames it will get; else the videos' scene's, or where these differ the training size.",
        ),
    ] = None,
    view: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="The part of --frame that shows the scene; else all of it.")
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Any batch and size, without resizing inside.")] = False,
    logits: Annotated[bool, typer.Option("--logits", help="Give the scores of all classes, not the mask.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Weights and computation in half precision.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over existing files.")] = False,
) -> None:
    """Write a run's model as ONNX, checked against PyTorch, and its model card."""
    size = _numbers("--frame", frame, "1920x1080") if frame else None
    rect = _numbers("--view", view, "420,0,1080,1080") if view else None
    output = output or run / "model.onnx"
    card_alone = suffix_of(output) == ".md"
    if not card_alone:
        from suture.data.view import View
        from suture.prediction.options import validate_export_options

        height_width = (size[1], size[0]) if size else None
        seen = View.parse(rect, "--view") if rect else None
        validate_export_options(output, height_width, seen, dynamic=dynamic, force=force)
    with _waiting():
        from suture.deployment.export import export_run, write_card

    if card_alone:
        write_card(run, output, force=force)
        _say(out, f"Card: {output}")
        return
    with _waiting("Exporting, and comparing with PyTorch"):
        done = export_run(
            run,
            output,
            frame=height_width,
            view=seen,
            dynamic=dynamic,
            logits=logits,
            half=fp16,
            force=force,
        )
    _say(out, f"{done.path}: {done.shape}")
    if not (frame or dynamic):
        others = "for others give --frame WIDTHxHEIGHT and --view X,Y,W,H"
        _say(out, f"It takes frames of that size only, which show the scene alone: {others}.")
    elif not (view or dynamic):
        _say(out, "It takes frames that show the scene alone: where a border is around it, give --view X,Y,W,H.")
    of = "of the run's videos" if done.real else "that were generated, as the run's data cannot be read here"
    _say(out, f"Same class as in PyTorch: {done.agreement:.3%} of the pixels of {done.checked} frames {of}")
    _say(out, f"Card: {done.card}")


@app.command()
def predict(
    model: Annotated[Path, _existing("a run folder, a model.safetensors or an ONNX file")],
    inputs: Annotated[list[str], typer.Argument(help="Videos, images, folders or globs.", metavar="INPUT")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the results go, a folder for each input.")],
    masks: Annotated[
        Literal["png", "video", "none"], typer.Option(help="A palette PNG for each frame, or one lossless video.")
    ] = "png",
    no_overlay: Annotated[
        bool, typer.Option("--no-overlay", help="Write no frames with their masks over them.")
    ] = False,
    table: Annotated[
        Literal["csv", "parquet", "none"], typer.Option(help="Areas, confidence and flicker of each frame.")
    ] = "csv",
    view: Annotated[
        str, typer.Option(help="What shows the scene: as trained, auto (black borders are found), none, or x,y,w,h.")
    ] = "trained",
    videos_by: Annotated[
        Literal["trained", "folder", "name"],
        typer.Option(help="What makes one video of images: as trained, their folder, or the name before their number."),
    ] = "trained",
    smooth: Annotated[
        float, typer.Option(help="Carry over so much of the frame before where nothing moves, such as 0.7.")
    ] = 0.0,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored frame.")] = False,
    scales: Annotated[str, typer.Option(help="Average over these sizes of the frame, such as 0.75,1,1.25.")] = "1",
    window: Annotated[bool, typer.Option("--window", help="Large frames in overlapping windows, not shrunk.")] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="Frames at a time; else 16 on a GPU, 1 on a CPU.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Write over results of another model or other settings.")
    ] = False,
) -> None:
    """Segment videos and images; exit code 1 if frames had to be left out. Started again, it goes on where it was."""
    from suture.core.settings import validate_scales
    from suture.prediction.inputs import expanded
    from suture.prediction.options import Settings, parse_view, validate_output_folder

    for given in inputs:
        expanded(given)  # refuses what is not there
    try:
        sizes = [float(scale) for scale in scales.split(",")]
    except ValueError:
        raise UserError(f"--scales is {scales}, expected numbers such as 0.75,1,1.25.") from None
    validate_scales(sizes)
    settings = Settings(masks, not no_overlay, table, parse_view(view), smooth, videos_by)
    validate_output_folder(output)
    with _waiting():
        from suture.prediction.predict import predict as predict_inputs
        from suture.prediction.predictor import Predictor

    predictor = Predictor(model, device, flip=flip, scales=sizes, window=window)
    summary = predict_inputs(predictor, inputs, output, settings, batch=batch, force=force, console=err)
    if _first():
        skipped = number(summary.skipped, "input")
        problems = f", {number(len(summary.problems), 'problem')}" if summary.problems else ""
        if summary.skipped and not summary.clips and not summary.problems:
            were = "was" if summary.skipped == 1 else "were"
            _say(out, f"Nothing left to predict: {skipped} {were} done before ({output})")
        else:
            done = f"{number(summary.frames, 'frame')} of {number(summary.clips, 'input')}"
            before = f", {skipped} done before" if summary.skipped else ""
            _say(out, f"Predicted: {output} ({done}{before}{problems})")
    if summary.problems:
        raise typer.Exit(1)


@app.command()
def compare(
    file: Annotated[Path, _existing("a comparison file; or a folder of finished runs, to write its tables")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where runs and tables go; else runs/NAME.", callback=_refuse_file),
    ] = None,
    devices: Annotated[str | None, typer.Option(help="GPU numbers such as 0,1, or cpu; else all GPUs.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time on each device.")] = 1,
    minutes: Annotated[float | None, typer.Option(help="Start no run that would not end within so many.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD|RUN", help="Train only this method's runs, or this run; first what is named first."
        ),
    ] = None,
    list: Annotated[bool, typer.Option("--list", help="Only say which runs there are, and which are done.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Only write the tables of the finished runs.")] = False,
    collect: Annotated[
        Path | None,
        typer.Option(
            help="Copy each finished run's small files into this folder, as it finishes.", callback=_refuse_file
        ),
    ] = None,
) -> None:
    """Train datasets × labellings × methods × seeds, going on where it was, and write the tables."""
    if list and file.is_dir():
        raise UserError(f"{file} is a folder, but --list tells of a comparison file: give that, with -o {file}.")
    only_tables = tables or file.is_dir()
    if only and not list and only_tables:
        raise UserError(f"--only is {', '.join(only)}, but tables are of all methods: leave it out.")
    if list or only_tables:
        given = {"--devices": devices is not None, "--jobs": jobs > 1, "--minutes": minutes is not None}
        if list:
            given |= {"--tables": tables, "--collect": collect is not None}
        if unused := [option for option, said in given.items() if said]:
            _say(err, f"{'--list' if list else 'The writing of tables'} takes no notice of {listed(unused)}.")
    with _waiting():
        from suture.comparison import compare as comparisons
        from suture.comparison.collect import collect as collect_runs
        from suture.comparison.plan import read_plan

    folder = file if file.is_dir() else output or comparisons.default_folder(file)
    if list:
        out.print(comparisons.listing(read_plan(file).only(only or ()), folder))
        return
    outcome = None
    if not only_tables:
        outcome = comparisons.compare(file, output, devices, jobs, minutes, only or (), collect, err)
    if collect is not None:  # before the tables, which can be made again
        copied = collect_runs(folder, collect)
        _say(out, f"{number(len(copied), 'run')} collected in {collect}")
    if only_tables:
        comparisons.show_tables(folder, output if file.is_dir() else None, out)
    if outcome is not None and (outcome.failed or outcome.left):
        raise typer.Exit(1)


def _waiting(what: str = "Loading PyTorch") -> AbstractContextManager[Any]:
    """Around what takes seconds, such as to import PyTorch; of several processes, the first one says so."""
    from suture.core.progress import waiting

    return waiting(what, err) if _first() else nullcontext()


def _options(said: list[str] | None) -> dict[str, Any]:
    """`KEY=VALUE` options of a source, values as YAML."""
    from suture.training.overrides import set_value

    options: dict[str, Any] = {}
    for option in said or []:
        set_value(options, option, COMMAND_LINE)
    return options


def _show_scores(table: Table, metrics: Sequence[dict[str, Any]]) -> None:
    """The scores of runs in a table, and below it what they rest on where that is little."""
    from suture.evaluation.caution import few

    out.print(table)
    for sentence in few(metrics):
        _say(out, sentence)


def _numbers(option: str, said: str, example: str) -> list[int]:
    """The numbers of an option that is written as `example`: none is negative, and the last two are sides."""
    mark = "x" if "x" in example else ","
    parts = said.lower().split(mark)
    numbers = [int(part) for part in parts if part.strip().isdecimal()]
    if len(numbers) != len(parts) or len(parts) != len(example.split(mark)) or 0 in numbers[-2:]:
        raise UserError(f"{option} is {said}, expected numbers such as {example}.")
    return numbers


def _say(console: Console, line: str) -> None:
    """One line as it is: paths are there to be copied, and may hold what Rich takes for markup."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _same_command() -> str:
    """The command that goes on with what this one has begun, to be copied: by force `predict` would begin anew."""
    words = sys.argv[1:]
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        return "start all processes again, by the same command"  # which they do not know
    return shlex.join(["suture", *(word for word in words if not (word == "--force" and "predict" in words))])


def _first() -> bool:
    """Whether this process prints, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def main() -> None:
    """The command line: a user's mistake, or a file that the system refuses, is one sentence and exit code 2."""
    with hearing(signal.SIGTERM, end):
        try:
            app()
        except (UserError, OSError) as error:
            if "--debug" in sys.argv:
                raise
            sentence = str(error)
            if isinstance(error, OSError):
                mend = "make room" if is_full(error) else "check the path, and whether you may read and write there"
                sentence = f"{describe_os_error(error)}: {mend}, then start the same command again."
            err.print(Text.assemble(("error: ", "red"), sentence), soft_wrap=True)
            sys.exit(2)
        except SystemExit as ended:
            if ended.code in (130, 143) and _first():  # Typer's answer to Ctrl-C, and ours to SIGTERM
                _say(err, f"Stopped; to go on: {_same_command()}")
            raise


if __name__ == "__main__":
    main()
