"""Write the tables of the measured figures: `python benchmarks/plot.py`.

Every benchmark writes its figures with `--json research/performance/NAME.json`. This writes all of them as tables into
`research/performance/README.md`, and the summary into `docs/explanation/performance.md`. `--check` writes nothing and
fails if a page differs.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common import ROOT, show, table
from growth import epoch_seconds

FIGURES = ROOT / "research" / "performance"
PAGE = FIGURES / "README.md"
SUMMARY = ROOT / "docs" / "explanation" / "performance.md"
EPOCHS, QUERIES, CHECKPOINT = 140, 2235, 200
"""Of the paper's contrast stage on EndoVis18, and the steps between two checkpoints of a run."""
SMALL_CARD = ("12gb", "preset")
"""The modes of contrast_stage.py in a process that may take no more memory than a card of 12 GB has."""
Facts = dict[str, Any]


def ratio(a: float | None, b: float | None) -> str | None:
    return None if not a or not b else f"{a / b:,.1f}×" if a / b < 100 else f"{a / b:,.0f}×"


def gigabytes(count: float | None) -> float | None:
    return None if count is None else count / 1e9


def percent(part: float | None, whole: float | None) -> str | None:
    return None if not part or not whole else f"{part / whole:.1%}"


def held_against(reference: float | None, pace: float) -> str | None:
    """A pace to compare with, and what is reached of it."""
    return None if not reference else f"{show(reference)} ({percent(pace, reference)})"


def beside(pace: float | None, reference: float) -> str | None:
    """A pace, and what it reaches of a reference that stands elsewhere."""
    return None if not pace else f"{show(pace)} ({pace / reference:.0%})"


def compact(rows: Iterable[Sequence[Any]], head: Sequence[str]) -> str:
    """A table without the columns that nothing is known for."""
    known = list(rows)
    kept = [column for column in range(len(head)) if any(row[column] is not None for row in known)]
    return table(([row[column] for column in kept] for row in known), [head[column] for column in kept])


def ceiling(facts: Facts) -> float:
    """Floating-point operations per second, of which floors are made: a matrix product's, in the same run."""
    told = facts.get("flops_per_second") or facts.get("floor", {}).get("flops_per_second")
    return float(told or facts["settings"]["tflops"] * 1e12)  # older figures took what was known of the device


def at_the_ceiling(facts: Facts) -> str:
    return f"By FLOPs: at {teraflops(ceiling(facts))}."


def teraflops(pace: float) -> str:
    return f"{show(pace / 1e12)} TFLOP/s" if pace > 1e12 else f"{show(pace / 1e9)} GFLOP/s"


# Tables


def contrast_loss(facts: Facts) -> str:
    head = ("grid", "batch", "keys", "pairwise ms", "ours ms", "ratio", "floor ms")
    rows = [*facts["grids"], *facts["keys"], *facts["promised"]]
    unique = {(row["grid"], row["batch"], row["keys"]): row for row in rows}
    cells = (
        (
            *(f"{grid}×{grid}", batch, keys, row["pairwise_ms"], row["ours_ms"]),
            *(ratio(row["pairwise_ms"], row["ours_ms"]), row["floor_ms"], ratio(row["ours_ms"], row["floor_ms"])),
            *(gigabytes(row["pairwise_bytes"]), gigabytes(row["ours_bytes"])),
            ratio(row["ours_bytes"], row["features_bytes"]),
        )
        for (grid, batch, keys), row in sorted(unique.items())
    )
    eager = [row["eager_ms"] for row in rows]
    words = (
        f"Forward and backward together, replayed as a CUDA graph, as a training step is. Called one operation after "
        f"the other from Python, the same kernels take {min(eager):.1f} to {max(eager):.1f} ms, nearly all of it "
        "waiting for the next launch. The pairwise ones, which are not replayed, wait too: at 30×30 that is all of the "
        "ratio."
    )
    if any(row["pairwise_ms"] is None for row in rows):
        words += " A dash is a pairwise matrix that does not fit the card."
    return table(cells, (*head, "of floor", "pairwise GB", "ours GB", "of query")) + f"\n\n{words}"


def contrast_stage(facts: Facts) -> str:
    rows = facts["rows"]
    plain = rows.get("paper", {}).get("loaded", {}).get("frames_per_second")

    def cells(name: str) -> Sequence[Any]:
        row = rows[name]
        pace, parts = row["loaded"]["frames_per_second"], row.get("accumulate", 1)
        floors = (None, None) if name == "paper" else (row["bare"], row["by_flops"])  # of our networks
        return (
            *(name if parts == 1 else f"{name}, {parts} parts", pace),
            held_against(row.get("drawn", {}).get("frames_per_second"), pace),
            *(held_against(floor, pace) for floor in floors),
            *(ratio(pace, plain), gigabytes(row["loaded"]["peak_bytes"]), f"{EPOCHS * QUERIES / pace / 60:.1f}"),
        )

    head = ("keys", "queries/s", "resident", "bare networks", "by FLOPs", "paper's way", "peak GB")
    batch, size = facts["settings"]["batch"], facts["settings"]["size"]
    small = ", ".join(f"`{name}`" for name in ("preset", "paper") if name in rows)
    words = [f"Batch {batch} at {size}×{size}{small and f' ({small}: 4)'}."]
    if facts["settings"]["compile"]:
        words.append("Networks are compiled block by block, as in runs of this length.")
    if any(row["by_flops"] for row in rows.values()):
        words.append(at_the_ceiling(facts))
    if facts.get("floor", {}).get("recorded"):
        words.append("The bare networks are replayed as CUDA graphs.")
    if "checkpoint_seconds" in facts:  # the last of all to be measured
        words.append(f"The loader alone gives {show(facts['loader'])} queries/s.")
        starts = [row["loaded"].get("first_seconds") for name, row in rows.items() if name != "paper"]
        first = max(filter(None, starts), default=None)
        saved, each = int(EPOCHS * QUERIES / batch / CHECKPOINT), facts["checkpoint_seconds"]
        words.append(
            f"The minutes are those of the steps; {'' if first is None else f'the start ({show(first)} s) and '}"
            f"{saved} checkpoints ({show(each)} s each) come to them."
        )
    return compact(map(cells, rows), (*head, f"{EPOCHS} epochs, min")) + "\n\n" + " ".join(words)


def contrast_stage_12gb(facts: Facts) -> str:
    """Of the same figures, what was measured as if on a small card."""
    return contrast_stage(facts | {"rows": {name: row for name, row in facts["rows"].items() if name in SMALL_CARD}})


def profile_step(facts: Facts) -> str:
    busy = facts["busy_ms"]
    step = facts["step_ms"]
    frames, loss = ("queries", loss_share(facts)) if facts["stage"] == "contrast" else ("frames", "")
    kinds = ((kind, ms, percent(ms, busy)) for kind, ms in facts["kinds"].items())
    heaviest = (
        (f"`{max(re.findall(r'[a-z0-9_]+', one['name']), key=len)}`", one["calls"], one["ms"], percent(one["ms"], busy))
        for one in facts["top"][:4]
    )
    return (
        f"One eager step of {facts['batch']} {frames} at {facts['size']}×{facts['size']} takes {show(step)} ms; the "
        f"device computes for {show(busy)} ms of them ({percent(busy, step)}), in {show(round(facts['kernels']))} "
        f"kernels. Rendering takes {show(facts['render_ms'])} ms.{loss}\n\n"
        + table(kinds, ("kernels", "ms", "share"))
        + "\n\nThe heaviest of them:\n\n"
        + table(heaviest, ("kernel", "calls", "ms", "share"))
    )


def loss_share(facts: Facts) -> str:
    """What the contrast loss alone takes of such a step, by its own table."""
    rows = (read("contrast_loss") or {"promised": []})["promised"]
    for row in rows:
        if (row["batch"], 8 * row["grid"]) == (facts["batch"], facts["size"]):
            of_it = percent(row["ours_ms"], facts["busy_ms"])
            return f" The loss, forward and backward, is {show(row['ours_ms'])} ms of it ({of_it}), by its own table."
    return ""


def supervised(facts: Facts) -> str:
    rows = facts["rows"]
    strong = rows.get("strong", {"loaded": {}})["loaded"].get("step_ms")

    def cells(name: str) -> Sequence[Any]:
        row, alone = rows[name], name == "supervised"
        loaded, pace = row["loaded"], row["loaded"]["frames_per_second"]
        return (
            *(name, row["batch"], pace, held_against(row["drawn"]["frames_per_second"], pace)),
            *(held_against(row.get("bare"), pace), held_against(ceiling(facts) / row["flops_per_frame"], pace)),
            *(ratio(pace, row.get("plain", {}).get("frames_per_second")), loaded["step_ms"]),
            *(None if alone else ratio(loaded["step_ms"], strong), gigabytes(loaded["peak_bytes"])),
        )

    head = ("stage", "batch", "frames/s", "resident", "bare model", "by FLOPs", "plain way", "step ms")
    words = [at_the_ceiling(facts)]
    if "pixpro" in rows:
        words.append("`pixpro` counts frames of any kind, `dmt` both kinds together.")
    if facts["settings"]["compile"]:
        words.append("Networks are compiled block by block, as in runs of full length.")
    return compact(map(cells, rows), (*head, "step of strong", "peak GB")) + "\n\n" + " ".join(words)


def growth_keys(facts: Facts) -> str:
    first = facts["keys"][0]["step_ms"]
    rows = ((row["keys"], row["step_ms"], f"{row['step_ms'] / first:.2f}×") for row in facts["keys"])
    return table(rows, ("keys", "step ms", "ratio"))


def growth_frames(facts: Facts) -> str:
    rows = facts["frames"]
    small, large = rows[0], rows[-1]

    def without_import(row: Facts) -> float:
        return float(row["seconds"] - row["parts"]["import"])

    cells = (
        (
            *(row["frames"], row["first_seconds"], row["seconds"], row["cpu_seconds"], without_import(row)),
            *(row["private_bytes"] / 1e6, row["batch_ms"], epoch_seconds(row)),
        )
        for row in rows
    )
    head = ("frames", "first start s", "start s", "of CPU", "without import", "private MB", "batch ms", "epoch s")
    epochs = epoch_seconds(large) / epoch_seconds(small)
    return (
        f"{table(cells, head)}\n\n{ratio(large['frames'], small['frames'])} the frames: start-up "
        f"{large['seconds'] / small['seconds']:.2f}× (promised: under 2×; without importing torch, whose time varies "
        f"with what else the machine does, from {without_import(small):.1f} to {without_import(large):.1f} s), "
        f"{(large['private_bytes'] - small['private_bytes']) / 1e6:.0f} MB more memory (promised: under 200 MB), and "
        f"{epochs:.0f}× the time for drawing all batches of an epoch, by the mean of a hundred."
    )


def inference(facts: Facts) -> str:
    def cells(row: Facts) -> Sequence[Any]:
        fps, pace = row["fps"], row["fps"]["all at once"]
        return (
            *(row["size"].replace("x", "×"), fps["decoding alone"], fps["model alone"], row["drawing_fps"], pace),
            *(f"{row['share']:.0%}", beside(fps.get("a short clip"), fps["model alone"])),
            ratio(pace, fps.get("one by one")),
            row["cpu_ms_per_frame"]["all at once"],
            f"{row['gpu_busy']:.0%}" if row.get("gpu_busy") else None,
        )

    head = ("frames", "decoding alone", "model alone", "with drawing", "all at once", "of the slower", "a short clip")
    words = f"{facts['network']}; from an H.264 file; frames/s."
    if bare := facts.get("bare"):
        reached = [
            " and ".join(f"{row['fps']['all at once'] / pace:.0%}" for row in facts["rows"])
            for pace in (bare["fps"], bare["fps_by_flops"])
        ]
        words += (
            f" The bare network makes {show(bare['fps'])} in batches of {bare['batch']}, of which all at once is "
            f"{reached[0]}; by FLOPs, at {teraflops(bare['flops_per_second'])}, it would be "
            f"{show(bare['fps_by_flops'])} ({reached[1]})."
        )
    return f"{words}\n\n" + compact(map(cells, facts["rows"]), (*head, "over one by one", "ms of a core", "GPU busy"))


def overhead(facts: Facts) -> str:
    one, several = facts["fps_one_core"], facts["fps"]
    return table(((1, one, None), (facts["cores"], several, ratio(several, one))), ("cores", "frames/s", "ratio"))


def latency(facts: Facts) -> str:
    ours = next(iter(facts["ms"].values()))[0]
    rows = [(name, *times, f"{times[0] / ours:.2f}×") for name, times in facts["ms"].items()]
    if floor := facts.get("floor_ms"):
        rows.append(("by FLOPs", floor, None, None, f"{floor / ours:.2f}×"))
    return f"{facts['network']}; one frame of {facts['frame'][0]}×{facts['frame'][1]} at a time.\n\n" + table(
        rows, ("", "p50 ms", "p95 ms", "p99 ms", "p50, ratio")
    )


def export(facts: Facts) -> str:
    rows = (
        (
            *(row["network"], row["frames"], onnx := row["onnx"], row["eager"], f"{onnx / row['eager']:.2f}×"),
            *(row["onnx_median"], beside(row["predictor"], onnx), held_against(row["by_flops"], onnx)),
        )
        for row in facts["rows"]
    )
    head = ("network", "frames", "ONNX Runtime fps", "eager PyTorch fps", "ratio", "ONNX Runtime, median")
    return table(rows, (*head, "suture.Predictor", "by FLOPs"))


def cpu(facts: Facts) -> str:
    rows, plain = facts["rows"], facts["rows"][0]["seconds"]
    steps = list(zip([rows[0], *rows], rows, strict=False))

    def cells(row: Facts, gained: str | None) -> Sequence[Any]:
        times = (row.get(kind) for kind in ("supervised", "contrast", "stitch"))
        return *(row["way"], *times, row["seconds"], gained), f"{plain / row['seconds']:.2f}×"

    shown = [cells(row, f"{last['seconds'] / row['seconds']:.2f}×") for last, row in steps]
    if "floor" in facts:
        shown.append(cells(facts["floor"], None))
    head = ("with all above", "supervised step, ms", "contrast step, ms", "stitch step, ms", "the demo's steps, s")
    words = [] if facts["bfloat16"] else ["This processor does not compute in bfloat16."]
    if "stitch" not in facts["steps"]:
        words.append("The steps of `stitch` were not measured yet, and the sum is without them.")
    change = {row["way"]: {kind: abs(row[kind] / last[kind] - 1) for kind in facts["steps"]} for last, row in steps}
    if "aarch64" in facts["machine"]["device"]:
        noise = max(moved for kind, moved in change["class sums"].items() if kind != "contrast")
        nothing = "Class sums touch the contrast step alone: what other steps changed by there"
    else:  # there the convolution is torch's own, see suture.models.convolutions
        noise = max(change["fast depthwise convolution"].values())
        nothing = "The depthwise convolution is torch's own on this kind of processor: what it changed by"
    words.append(f"{nothing}, {noise:.0%}, is the noise.")
    return compact(shown, (*head, "gained", "in all")) + "\n\n" + " ".join(words)


def store(facts: Facts) -> str:
    decoded, stored, floor = facts["decoded_ms"], facts["stored_ms"], facts["floor_ms"]
    return (
        f"At {facts['size']}×{facts['size']}: {show(decoded)} ms decoded, {show(stored)} ms out of the store, "
        f"{ratio(decoded, stored)} as fast; a copy of its bytes takes {show(floor)} ms."
    )


def index(facts: Facts) -> str:
    one, other = (
        f"{row['kind']} of {row['frames']:,}: {show(row['seconds'])} s and {show(row['peak_bytes'] / 1e6)} MB"
        for row in facts["rows"]
    )
    return f"{one[0].upper()}{one[1:]}; {other}."


def render(facts: Facts) -> str:
    return (
        f"{facts['frames']} frames of {facts['width']}×{facts['height']}: {show(facts['cpu_fps'])} frames per second "
        f"of a core, {show(facts['wall_fps'])} by the clock."
    )


def film(facts: Facts) -> str:
    first = facts["rows"][0]
    rows = (
        (
            *(row["way"], row["cpu_ms"], f"{row['cpu_ms'] / first['cpu_ms']:.2f}×", row["bytes"] / 1000),
            *(f"{row['bytes'] / first['bytes']:.2f}×", f"{row['psnr']:.1f}"),
        )
        for row in facts["rows"]
    )
    return table(rows, ("x264", "ms of a core", "ratio", "kB a frame", "ratio", "PSNR, dB"))


def ways(row: Facts, ours: str) -> Sequence[Any]:
    """What each way takes, with its ratio to the first; and the floor, with what ours reaches of it."""
    (_, plain), *others = row["ms"].items()
    shown = [f"{show(value)} ({ratio(plain, value)})" for _, value in others]
    floor = row.get("floor_ms")
    return plain, *shown, floor and f"{show(floor)} ({percent(floor, row['ms'][ours])})"


def atrous(facts: Facts) -> str:
    def cells(row: Facts) -> Sequence[Any]:
        return f"{row['side']}×{row['side']}", row["frames"], row["dilation"], *ways(row, "ours")

    head = ("grid", "frames", "cells between taps", *(f"{way}, ms" for way in facts["rows"][0]["ms"]))
    return table(map(cells, facts["rows"]), (*head, "by FLOPs, ms"))


def folded(facts: Facts) -> str:
    rows = ((row["batch"], *ways(row, facts["ours"])) for row in facts["rows"])
    head = ("frames", *(f"{way}, ms" for way in facts["rows"][0]["ms"]), "by FLOPs, ms")
    return f"{facts['network']}; ours: {facts['ours']}.\n\n{table(rows, head)}"


def summary() -> str:
    """What was aimed at and what is reached, from the tables."""
    loss, stage, learning, video = (
        read(name) or {} for name in ("contrast_loss", "contrast_stage", "supervised", "inference_gpu")
    )
    keys, frames, exported, demo = (read(name) or {} for name in ("growth_keys", "growth_frames", "export", "cpu"))
    small, large = frames["frames"][0], frames["frames"][-1]
    memory = (large["private_bytes"] - small["private_bytes"]) / 1e6
    modes = [stage["rows"][mode] for mode in ("shared", "bank")]
    paper = stage["rows"]["paper"]["loaded"]["frames_per_second"]
    times = [row["step_ms"] for row in keys["keys"]]
    plain, *others = learning["rows"].values()
    fast = exported["rows"][1]
    steps = [
        {name: row["loaded"]["step_ms"] for name, row in facts["rows"].items()}
        for facts in (read("supervised_tilted") or {}, read("supervised_cpu") or {})
    ]
    paces = [row["fps"] for row in video["rows"]]

    def of_resident(rows: Iterable[Facts]) -> list[float]:
        return [row["loaded"]["frames_per_second"] / row["drawn"]["frames_per_second"] for row in rows]

    def both(values: Iterable[Any]) -> str:
        return " and ".join(map(str, values))

    rows = (
        (
            "Contrast loss at 60×60 (batch 16) and 120×120 (batch 4)",
            "1 ms",
            both(f"{row['ours_ms']:.2f} ms" for row in loss["promised"]),
            "pairwise " + both(ratio(row["pairwise_ms"], row["ours_ms"]) for row in loss["promised"]),
        ),
        (
            "Contrast stage with shared keys and with the bank, queries/s",
            "180 and 200",
            both(show(row["loaded"]["frames_per_second"]) for row in modes),
            "the paper's way " + both(ratio(row["loaded"]["frames_per_second"], paper) for row in modes),
        ),
        ("Its speed, of that on a resident batch", "95 %", both(f"{part:.1%}" for part in of_resident(modes)), None),
        ("A contrast step with all keys, of one with 6", "1.10×", f"{max(times) / min(times):.2f}×", None),
        (
            f"Start-up with {large['frames']:,} frames, of {small['frames']:,} (two CPU cores)",
            "2×",
            f"{large['seconds'] / small['seconds']:.2f}×",
            None,
        ),
        ("Its private memory", "200 MB more", f"{memory:.0f} MB more", None),
        (
            "Supervised training, of the bare model",
            "90 %",
            percent(plain["loaded"]["frames_per_second"], plain["bare"]),
            f"the plain way {ratio(plain['loaded']['frames_per_second'], plain['plain']['frames_per_second'])}",
        ),
        (
            "Other training stages, of their speed on a resident batch",
            "90 %",
            f"{min(of_resident(others)):.1%} to {max(of_resident(others)):.1%}",
            None,
        ),
        (
            "A step of `stitch`, of one of `strong`: H200 and two CPU cores",
            "at most 3×",
            both(f"{of['stitch'] / of['strong']:.1f}×" for of in steps),
            None,
        ),
        (
            "Video of 1280×1024 and 960×540 to masks and overlay, frames/s",
            None,
            both(show(fps["all at once"]) for fps in paces),
            "one by one " + both(ratio(fps["all at once"], fps["one by one"]) for fps in paces),
        ),
        ("The same, of the model alone", "85 %", both(f"{row['share']:.0%}" for row in video["rows"]), None),
        (
            "The same for a short clip",
            "85 %",
            both(f"{fps['a short clip'] / fps['model alone']:.0%}" for fps in paces),
            None,
        ),
        (
            "Preset `fast` in ONNX Runtime, two CPU cores, 256×256, frames/s",
            "25",
            show(fast["onnx"]),
            f"eager PyTorch {fast['onnx'] / fast['eager']:.2f}×",
        ),
        (
            "The demo's training on two CPU cores, of its plain version",
            "2×",
            f"{demo['rows'][0]['seconds'] / demo['rows'][-1]['seconds']:.2f}×",
            None,
        ),
    )
    return table(rows, ("", "aim", "reached", "as fast as"))


TABLES: dict[str, tuple[str, Callable[[Facts], str]]] = {
    "contrast_loss": ("contrast_loss.py", contrast_loss),
    "contrast_stage": ("contrast_stage.py --modes shared bank paper --steps 60", contrast_stage),
    "contrast_stage_12gb": ("contrast_stage.py --modes 12gb --steps 60", contrast_stage_12gb),
    "profile_contrast": ("profile_step.py --stage contrast --no-compile", profile_step),
    "atrous": ("atrous.py", atrous),
    "atrous_cpu": ("atrous.py", atrous),
    "supervised": ("supervised.py --stages supervised strong stitch unimatch uamt pixpro dmt", supervised),
    "supervised_tilted": ("supervised.py --stages supervised strong stitch", supervised),
    "supervised_cpu": (
        "supervised.py --stages supervised strong stitch --batch 8 --small-batch 8 --size 256 --native 1280 1024 "
        "--encoder resnet50 --frames 300 --steps 5",
        supervised,
    ),
    "profile_pixpro": ("profile_step.py --stage pixpro --batch 8 --no-compile", profile_step),
    "growth_keys": ("growth.py --only keys", growth_keys),
    "growth_frames": ("growth.py --only frames", growth_frames),
    "store": ("store.py", store),
    "index": ("index.py", index),
    "render": ("render.py", render),
    "inference": ("inference.py", inference),
    "inference_gpu": ("inference.py", inference),
    "folded": ("folded.py", folded),
    "folded_cpu": ("folded.py", folded),
    "film": ("film.py", film),
    "overhead": ("overhead.py", overhead),
    "latency": ("latency.py", latency),
    "latency_cpu": ("latency.py --device cpu", latency),
    "export": ("export.py", export),
    "cpu": ("cpu.py", cpu),
    "cpu_bf16": ("cpu.py --rounds 2", cpu),
}
"""The command that measures a table's figures, and how they are shown."""


def made_by(command: str, facts: Facts) -> str:
    """The command that made these figures: where it names modes or stages, those that they have."""
    return re.sub(r"(--modes|--stages)( \w+)+", lambda named: " ".join((named[1], *facts["rows"])), command)


def section(name: str) -> str:
    """A table with where and how its figures were measured."""
    command, shown = TABLES[name]
    figures = f"--json research/performance/{name}.json"
    facts = read(name)
    if facts is None:
        return f"## {name}\n\nNot measured yet: `python benchmarks/{command} {figures}`."
    machine = facts["machine"]
    return (
        f"## {name}\n\n{shown(facts)}\n\n{machine['device']}, {machine['cores']} cores, torch {machine['torch']}, "
        f"commit {machine['commit']}: `python benchmarks/{made_by(command, facts)} {figures}`"
    )


HEAD = """<!-- Generated by `python benchmarks/plot.py`. Do not edit. -->

# Performance tables

Every measured figure, with its machine, commit and command. Speeds are compared with ceilings; brackets show the share
that is reached.

- *Resident*: speed on one batch that is on the device already and is only augmented anew at every step.
- *Bare*: the network alone, in the shortest possible loop.
- *By FLOPs*: what the floating-point operations allow at the pace of a large matrix product.
- *Floor*: time that the bytes take at the pace of a plain copy.
"""


def pages() -> dict[Path, str]:
    """Both pages as the figures make them."""
    text = SUMMARY.read_text(encoding="utf-8")
    filled = re.sub(
        r"<!-- summary -->.*?<!-- end -->",
        lambda _: f"<!-- summary -->\n{summary()}\n<!-- end -->",
        text,
        flags=re.DOTALL,
    )
    return {PAGE: "\n\n".join([HEAD.rstrip(), *map(section, TABLES)]) + "\n", SUMMARY: filled}


def read(name: str) -> Facts | None:
    path = FIGURES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    check = options.parse_args().check
    for path, text in pages().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path.relative_to(ROOT)} is out of date: run python benchmarks/plot.py")


if __name__ == "__main__":
    main()
