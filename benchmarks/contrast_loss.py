"""The contrast loss, pairwise against ours: `python benchmarks/contrast_loss.py`.

Forward and backward of PGV-CL's loss, once from the similarities of all pixel pairs, as the paper writes it, and once
as `suture.losses.pixel_contrast` does. Grids and key frames grow; time and memory are printed with the ratio, the
largest difference of the gradients, and the floor: the bytes of key features (read), query features (read) and their
gradient (written), at the bandwidth of a plain copy.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from common import CUDA, DEVICE, bandwidth, captured, extra_memory, gpu_seconds, parser, report, table
from torch import Tensor
from torch.nn import functional

from suture.losses.pixel_contrast import ClassSums, class_sums, contrasts, pixel_contrast

IGNORE = 255
CLASSES = 12
PROMISED_MS, PROMISED_MEMORY = 1.0, 2.0


def pairwise_contrast(query: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's equations as they stand: query B D h w, keys B K D h w; the loss's sum and the pixels in it."""
    labels, key_labels = labels.flatten(1), key_labels.flatten(2)
    similarity = torch.einsum("bdi,bkdj->bkij", query.flatten(2), keys.flatten(3))
    valid = (key_labels != IGNORE)[:, :, None]
    same = (labels[:, None, :, None] == key_labels[:, :, None]) & valid
    other = ~same & valid
    positives = same.sum((1, 3))
    positive = (similarity * same).sum((1, 3)) / positives.clamp(min=1)
    negative = ((similarity * other).sum(3) / other.sum(3).clamp(min=1)).sum(1)
    part = (labels != IGNORE) & (positives > 0)
    return (functional.softplus(negative - positive) * part).sum(), part.sum()


def our_contrast(query: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same by class sums."""
    with torch.no_grad():
        sums = class_sums(keys.flatten(0, 1), key_labels.flatten(0, 1), CLASSES)
        against = contrasts(ClassSums(*(x.unflatten(0, keys.shape[:2]) for x in sums)))
    return pixel_contrast(query, labels, against)


class Case(NamedTuple):
    """Unit-length features in the layout that the networks give, and labels."""

    query: Tensor
    labels: Tensor
    keys: Tensor
    key_labels: Tensor

    @staticmethod
    def random(grid: int, batch: int, key_frames: int, depth: int) -> "Case":
        generator = torch.Generator(DEVICE).manual_seed(0)

        def features(count: int) -> Tensor:
            pixels = torch.randn((count, grid, grid, depth), generator=generator, device=DEVICE)
            return functional.normalize(pixels, dim=-1).permute(0, 3, 1, 2)

        def labels(count: int) -> Tensor:
            # blocks, as objects are; one in thirteen is ignore
            coarse = torch.randint(0, CLASSES + 1, (count, 1, 6, 6), generator=generator, device=DEVICE)
            fine = functional.interpolate(coarse.float(), (grid, grid)).long()[:, 0]
            return fine.masked_fill(fine == CLASSES, IGNORE)

        return Case(
            features(batch).requires_grad_(),
            labels(batch),
            features(batch * key_frames).unflatten(0, (batch, key_frames)),
            labels(batch * key_frames).unflatten(0, (batch, key_frames)),
        )

    def step(self, loss: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], Tensor]:
        """Forward and backward; gives the gradient."""

        def work() -> Tensor:
            total, weight = loss(*self)
            (gradient,) = torch.autograd.grad(total / weight, self.query)
            return gradient

        return work


def measure(options: argparse.Namespace, grid: int, batch: int, key_frames: int, copied: float) -> dict[str, Any]:
    """One row."""
    case = Case.random(grid, batch, key_frames, options.depth)
    eager = case.step(our_contrast)
    compiled = case.step(torch.compile(our_contrast)) if options.compile else None
    features = case.query.numel() * case.query.element_size()
    row: dict[str, Any] = {
        "grid": grid,
        "batch": batch,
        "keys": key_frames,
        "floor_ms": (case.keys.numel() * 4 + 2 * features) / copied * 1000,
        "eager_ms": gpu_seconds(eager, options.repeats) * 1000,
        "ours_bytes": extra_memory(eager),
        "features_bytes": features,
    }
    if compiled is not None:
        row["compiled_ms"] = gpu_seconds(compiled, options.repeats) * 1000
    row["ours_ms"] = gpu_seconds(captured(eager), options.repeats) * 1000
    pairs = batch * key_frames * grid**4 * 4
    room = torch.cuda.mem_get_info()[1] if CUDA else 12e9
    row |= {"pairwise_ms": None, "pairwise_bytes": None, "gradient_difference": None}
    if 4.2 * pairs > 0.9 * room:
        return row  # out of memory
    plain = case.step(pairwise_contrast)
    try:
        exact = plain()
        row["gradient_difference"] = float((eager() - exact).norm() / exact.norm())
        del exact
        row["pairwise_bytes"] = extra_memory(plain)
        row["pairwise_ms"] = gpu_seconds(plain, 3 if pairs > 1e9 or not CUDA else 10, warmup=1) * 1000
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
    return row


def show_rows(rows: list[dict[str, Any]]) -> str:
    """The rows for people."""

    def ratio(a: float | None, b: float | None) -> str | None:
        return None if a is None or b is None else f"{a / b:,.0f}x"

    def mib(count: int | None) -> float | None:
        return None if count is None else count / 2**20

    return table(
        (
            (
                f"{r['grid']}×{r['grid']}",
                r["batch"],
                r["keys"],
                r["pairwise_ms"],
                r["eager_ms"],
                r.get("compiled_ms"),
                r["ours_ms"],
                ratio(r["pairwise_ms"], r["ours_ms"]),
                r["floor_ms"],
                mib(r["pairwise_bytes"]),
                mib(r["ours_bytes"]),
                None if r["ours_bytes"] is None else r["ours_bytes"] / r["features_bytes"],
                r["gradient_difference"],
            )
            for r in rows
        ),
        (
            *("grid", "batch", "keys", "pairwise ms", "ours, eager ms", "compiled ms", "ours ms", "ratio", "floor ms"),
            *("pairwise MiB", "ours MiB", "× features", "gradients differ"),
        ),
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--depth", type=int, default=256 if CUDA else 64)
    options.add_argument("--grids", type=int, nargs="*", default=[30, 60, 90, 120] if CUDA else [8, 16, 30])
    options.add_argument("--keys", type=int, nargs="*", default=[1, 6, 16, 64] if CUDA else [1, 6])
    options.add_argument("--repeats", type=int, default=30 if CUDA else 3)
    options.add_argument("--compile", action="store_true", help="torch.compile too")
    chosen = options.parse_args()
    torch.set_float32_matmul_precision("high")  # as a run does
    copied = bandwidth()
    bars = [(60, 16, 6), (120, 4, 6)] if CUDA else [(30, 2, 6)]
    promised = [measure(chosen, *bar, copied) for bar in bars]
    print(f"copying at {copied / 1e12:.2f} TB/s; features of {chosen.depth} channels, fp32, {CLASSES} classes")
    print(show_rows(promised))
    for row in promised:
        within = "" if row["ours_bytes"] is None else f", {row['ours_bytes'] / row['features_bytes']:.2f}x features"
        print(
            f"{row['grid']}×{row['grid']}, batch {row['batch']}: {row['ours_ms']:.3f} ms{within} "
            f"(promised {PROMISED_MS:.0f} ms and {PROMISED_MEMORY:.0f}x), "
            f"{row['ours_ms'] / row['floor_ms']:.1f}x the floor"
        )
    by_grid = [measure(chosen, grid, 4 if CUDA else 1, 6, copied) for grid in chosen.grids]
    print(show_rows(by_grid), flush=True)
    middle = 60 if CUDA else 16
    by_keys = [measure(chosen, middle, 4 if CUDA else 1, keys, copied) for keys in chosen.keys]
    print(show_rows(by_keys), flush=True)
    figures = {"bandwidth": copied, "depth": chosen.depth, "promised": promised, "grids": by_grid, "keys": by_keys}
    report("contrast_loss", figures, chosen.json)


if __name__ == "__main__":
    main()
