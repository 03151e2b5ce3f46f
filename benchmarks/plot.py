"""The figures of docs/performance/*.json as tables and pictures of docs/performance.md: `python benchmarks/plot.py`.

Every benchmark writes its figures with `--json docs/performance/NAME.json`; this puts them into the page, between
`<!-- NAME -->` and `<!-- end -->`, so that no number there is typed by hand. `--check` only says whether the page is
what the figures say, by its exit code.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from common import ROOT, show, table
from matplotlib.figure import Figure

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "performance"
IMAGES = ROOT / "docs" / "images"
OURS, PLAIN, FLOOR = "#0072b2", "#d55e00", "#999999"
Facts = dict[str, Any]


def ratio(a: float | None, b: float | None) -> str | None:
    return None if not a or not b else f"{a / b:,.1f}×" if a / b < 100 else f"{a / b:,.0f}×"


def gigabytes(count: float | None) -> float | None:
    return None if count is None else count / 1e9


def percent(part: float | None, whole: float | None) -> str | None:
    return None if not part or not whole else f"{part / whole:.1%}"


# Tables


def contrast_loss(facts: Facts) -> str:
    head = (
        "grid",
        "batch",
        "keys",
        "pairwise ms",
        "ours ms",
        "ratio",
        "floor ms",
        "pairwise GB",
        "ours GB",
        "of query",
    )
    rows = [*facts["promised"], *facts["grids"], *facts["keys"]]
    unique = {(row["grid"], row["batch"], row["keys"]): row for row in rows}
    return table(
        (
            (
                *(f"{grid}×{grid}", batch, keys, row["pairwise_ms"], row["ours_ms"]),
                *(ratio(row["pairwise_ms"], row["ours_ms"]), row["floor_ms"], gigabytes(row["pairwise_bytes"])),
                *(gigabytes(row["ours_bytes"]), ratio(row["ours_bytes"], row["features_bytes"])),
            )
            for (grid, batch, keys), row in sorted(unique.items())
        ),
        head,
    )


def contrast_stage(facts: Facts) -> str:
    rows = facts["rows"]
    plain = rows.get("paper", {}).get("loaded", {}).get("frames_per_second")

    def cells(name: str) -> Sequence[Any]:
        row = rows[name]
        loaded, pace = row["loaded"], row["loaded"]["frames_per_second"]
        resident = row.get("drawn", {}).get("frames_per_second")
        parts = row.get("accumulate", 1)
        return (
            *(name if parts == 1 else f"{name}, {parts} parts", pace, resident, percent(pace, resident)),
            *(row["bare"], row["by_flops"], ratio(pace, plain), gigabytes(loaded["peak_bytes"])),
            f"{140 * 2235 / pace / 3600:.2f}",
        )

    head = (
        "keys",
        "queries/s",
        "resident",
        "share",
        "bare networks",
        "by FLOPs",
        "paper's way",
        "peak GB",
        "140 epochs, h",
    )
    batch, size = facts["settings"]["batch"], facts["settings"]["size"]
    words = [f"Batch {batch} at {size}×{size} (`preset` and `paper`: 4)."]
    if facts["settings"]["compile"]:
        words.append("Networks are compiled block by block, as in runs of this length.")
    if "checkpoint_seconds" in facts:  # the last of all to be measured
        words.append(
            f"The loader alone gives {show(facts['loader'])} queries/s; "
            f"a checkpoint takes {show(facts['checkpoint_seconds'])} s."
        )
    return table(map(cells, rows), head) + "\n\n" + " ".join(words)


def profile_contrast(facts: Facts) -> str:
    busy = facts["busy_ms"]
    step = facts["step_ms"]
    kinds = ((kind, ms, percent(ms, busy)) for kind, ms in facts["kinds"].items())
    heaviest = (
        (f"`{max(re.findall(r'[a-z0-9_]+', one['name']), key=len)}`", one["calls"], one["ms"], percent(one["ms"], busy))
        for one in facts["top"][:6]
    )
    return (
        f"One eager step of {facts['batch']} queries at {facts['size']}×{facts['size']} takes {show(step)} ms; the "
        f"device computes for {show(busy)} ms of them ({percent(busy, step)}), in {show(round(facts['kernels']))} "
        f"kernels. Rendering takes {show(facts['render_ms'])} ms.{loss_share(facts)}\n\n"
        + table(kinds, ("kernels", "ms", "share"))
        + "\n\nThe heaviest of them:\n\n"
        + table(heaviest, ("kernel", "calls", "ms", "share"))
    )


def loss_share(facts: Facts) -> str:
    """What the loss alone takes of such a step, by its own table."""
    rows = (read("contrast_loss") or {"promised": []})["promised"]
    for row in rows:
        if (row["batch"], 8 * row["grid"]) == (facts["batch"], facts["size"]):
            of_it = percent(row["ours_ms"], facts["busy_ms"])
            return f" The loss, forward and backward, is {show(row['ours_ms'])} ms of it ({of_it}), by its own table."
    return ""


def supervised(facts: Facts) -> str:
    strong = facts["rows"].get("strong", {"loaded": {}})["loaded"].get("frames_per_second")

    def cells(name: str) -> Sequence[Any]:
        row = facts["rows"][name]
        pace, resident = row["loaded"]["frames_per_second"], row["rendered"]["frames_per_second"]
        bare = facts["bare"]["images_per_second"] if name == "supervised" else None
        plain = None if name == "supervised" else strong
        return (
            *(name, row["batch"], pace, resident, percent(pace, resident), bare, percent(pace, bare)),
            *(ratio(plain, pace), gigabytes(row["loaded"]["peak_bytes"])),
        )

    head = ("stage", "batch", "labelled frames/s", "resident", "share", "bare model", "share", "step of strong")
    return table(map(cells, facts["rows"]), (*head, "peak GB"))


def growth_keys(facts: Facts) -> str:
    first = facts["keys"][0]["step_ms"]
    rows = ((row["keys"], row["step_ms"], f"{row['step_ms'] / first:.2f}×") for row in facts["keys"])
    return table(rows, ("keys", "step ms", "ratio"))


def growth_frames(facts: Facts) -> str:
    small, large = facts["frames"]
    names = list(small["parts"])
    rows = (
        (row["frames"], row["seconds"], *map(row["parts"].get, names), row["private_bytes"] / 1e6, row["batch_ms"])
        for row in (small, large)
    )
    return (
        table(rows, ("frames", "start s", *names, "private MB", "batch ms")) + "\n\n"
        f"{ratio(large['frames'], small['frames'])} the frames: start-up {large['seconds'] / small['seconds']:.2f}× "
        f"(promised: under 2×), {(large['private_bytes'] - small['private_bytes']) / 1e6:.0f} MB more memory "
        f"(promised: under 200 MB); a batch is drawn in {large['batch_ms'] / small['batch_ms']:.2f}× the time, so that "
        "an epoch costs no more per frame."
    )


def inference(facts: Facts) -> str:
    parts, more = ("decoding alone", "model alone"), ("all at once", "of the slower", "a short clip", "ms of a core")
    head = ("frames", *parts, "with drawing", *more)
    rows = (
        (
            row["size"].replace("x", "×"),
            *(*(row["fps"][part] for part in parts), row["drawing_fps"], row["fps"]["all at once"]),
            *(f"{row['share']:.0%}", row["fps"].get("a short clip"), row["cpu_ms_per_frame"]["all at once"]),
        )
        for row in facts["rows"]
    )
    return f"{facts['network']}; from an H.264 file; frames/s.\n\n" + table(rows, head)


def overhead(facts: Facts) -> str:
    rows = ((facts["cores"], facts["fps"]), (1, facts["fps_one_core"]))
    return table(rows, ("cores", "frames/s"))


def latency(facts: Facts) -> str:
    return f"{facts['network']}; one frame of {facts['frame'][0]}×{facts['frame'][1]} at a time.\n\n" + table(
        ((name, *times) for name, times in facts["ms"].items()), ("", "p50 ms", "p95 ms", "p99 ms")
    )


def export(facts: Facts) -> str:
    head = ("network", "frames", "ONNX Runtime fps", "eager PyTorch fps", "ratio")
    return table(((*row[:-1], f"{row[-1]:.2f}×") for row in facts["rows"]), head)


def cpu(facts: Facts) -> str:
    rows, plain = facts["rows"], facts["rows"][0]["seconds"]
    cells = (
        (
            *(row["way"], row["supervised"], row["contrast"], row["seconds"]),
            *(f"{last['seconds'] / row['seconds']:.2f}×", f"{plain / row['seconds']:.2f}×"),
        )
        for last, row in zip([rows[0], *rows], rows, strict=False)
    )
    none = "" if facts["bfloat16"] else "\n\nThis processor does not compute in bfloat16."
    head = ("with all above", "supervised step, ms", "contrast step, ms", "the demo's steps, s", "gained", "in all")
    return table(cells, head) + none


TABLES: dict[str, tuple[str, Callable[[Facts], str]]] = {
    "contrast_loss": ("contrast_loss.py", contrast_loss),
    "contrast_stage": ("contrast_stage.py --modes shared bank 12gb --steps 80", contrast_stage),
    "contrast_stage_paper": ("contrast_stage.py --modes paper shared --steps 40 --resident-steps 0", contrast_stage),
    "profile_contrast": ("profile_step.py --stage contrast --no-compile", profile_contrast),
    "supervised": ("supervised.py --steps 25 --stages supervised strong unimatch uamt", supervised),
    "stitch": ("supervised.py --steps 25 --no-compile --stages strong stitch", supervised),
    "growth_keys": ("growth.py --only keys", growth_keys),
    "growth_frames": ("growth.py --only frames", growth_frames),
    "inference": ("inference.py", inference),
    "inference_gpu": ("inference.py", inference),
    "overhead": ("overhead.py", overhead),
    "latency": ("latency.py", latency),
    "latency_cpu": ("latency.py --device cpu", latency),
    "export": ("export.py", export),
    "cpu": ("cpu.py", cpu),
}
"""The command that measures a table's figures, and how they are shown."""


def section(name: str) -> str:
    """A table with where and how its figures were measured."""
    command, shown = TABLES[name]
    path = FIGURES / f"{name}.json"
    asked = f"`python benchmarks/{command} --json docs/performance/{name}.json`"
    if not path.exists():
        return f"Not measured yet: {asked}."
    facts = json.loads(path.read_text(encoding="utf-8"))
    machine = facts["machine"]
    return (
        f"{shown(facts)}\n\n{machine['device']}, {machine['cores']} cores, torch {machine['torch']}, commit "
        f"{machine['commit']}: {asked}"
    )


def page(text: str) -> str:
    """The page with the tables that its marks name."""

    def filled(mark: re.Match[str]) -> str:
        return f"<!-- {mark[1]} -->\n{section(mark[1])}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", filled, text, flags=re.DOTALL)


# Pictures


def draw_loss(facts: Facts) -> Figure:
    """Time and memory of the loss as the grid and the number of keys grow."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for column, (rows, key, label) in enumerate(
        ((facts["grids"], "grid", "side of the feature grid (6 keys)"), (facts["keys"], "keys", "key frames (60×60)"))
    ):
        x = [row[key] for row in rows]
        for row, unit, scale, what in ((0, "ms", 1, "forward + backward, ms"), (1, "bytes", 1e9, "extra memory, GB")):
            plot = axes[row, column]
            for name, color, words in (("pairwise", PLAIN, "all pixel pairs"), ("ours", OURS, "class sums (ours)")):
                known = [
                    (a, one[f"{name}_{unit}"] / scale) for a, one in zip(x, rows, strict=True) if one[f"{name}_{unit}"]
                ]
                plot.plot(*zip(*known, strict=True), "o-", color=color, label=words)
            if unit == "ms":
                plot.plot(
                    x, [one["floor_ms"] for one in rows], "--", color=FLOOR, label="floor: bytes at a copy's speed"
                )
                plot.set_title("the grid grows" if key == "grid" else "the keys grow")
            plot.set(xscale="log", yscale="log", xlabel=label, xticks=x)
            plot.set_xticks(x, map(str, x))
            plot.minorticks_off()
            plot.grid(alpha=0.3)
            if not column:
                plot.set_ylabel(what)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(
        f"The contrast loss, batch {facts['grids'][0]['batch']}, {facts['depth']} channels, {device(facts)}"
    )
    return figure


def draw_growth(keys: Facts | None, frames: Facts | None) -> Figure:
    """The step as keys grow, the start as frames grow."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for plot, facts in ((left, keys), (middle, frames), (right, frames)):
        plot.set_visible(facts is not None)
    if keys:
        rows = keys["keys"]
        left.bar([str(row["keys"]) for row in rows], [row["step_ms"] for row in rows], color=OURS)
        left.set(title=f"a contrast step, {device(keys)}", xlabel="keys that stand behind a query", ylabel="ms")
    if frames:
        rows = frames["frames"]
        names = [f"{row['frames']:,}" for row in rows]
        bottom = [0.0] * len(rows)
        for number, part in enumerate(rows[0]["parts"]):
            heights = [row["parts"][part] for row in rows]
            middle.bar(names, heights, bottom=bottom, label=part, color=f"C{number}")
            bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
        middle.set(title=f"a start, {device(frames)}", xlabel="frames", ylabel="s")
        middle.set_xlim(-0.6, len(rows) + 1.1)
        middle.legend(fontsize=7, reverse=True)
        right.bar(names, [row["private_bytes"] / 1e6 for row in rows], color=OURS)
        right.set(title="private memory", xlabel="frames", ylabel="MB")
    return figure


def device(facts: Facts) -> str:
    return str(facts["machine"]["device"])


def read(name: str) -> Facts | None:
    path = FIGURES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="write nothing; fail if the page says other numbers")
    text = PAGE.read_text(encoding="utf-8")
    filled = page(text)
    if options.parse_args().check:
        raise SystemExit(filled != text and f"{PAGE.name} is not what the figures say: run python {__file__}")
    PAGE.write_text(filled, encoding="utf-8")
    keys, frames = read("growth_keys"), read("growth_frames")
    pictures = {"loss": draw_loss(facts) if (facts := read("contrast_loss")) else None}
    pictures["growth"] = draw_growth(keys, frames) if keys or frames else None
    for name, figure in pictures.items():
        if figure:
            figure.savefig(IMAGES / f"performance-{name}.png", dpi=110)
            print(f"docs/images/performance-{name}.png")
    print(f"docs/performance.md: {', '.join(re.findall(r'<!-- (?!end)(.+?) -->', text))}")


if __name__ == "__main__":
    main()
