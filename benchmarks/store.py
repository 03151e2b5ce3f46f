"""How much faster the frame store is than decoding: `python benchmarks/store.py`.

Reads the same 1280x1024 PNG frames in random order, once decoded and resized to 480x480, once out of the store, one
core each and with warm disk caches, and prints the ratio against the 30 that Suture promises; and against the floor, a
copy of as many bytes.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from common import parser, report, seconds

from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.store import Fit, FrameStore
from suture.data.view import View

PROMISED = 30.0
WIDTH, HEIGHT, SIZE = 1280, 1024, 480
FRAMES = 64


def scene(rng: np.random.Generator) -> np.ndarray:
    """A picture that compresses about as well as endoscopic video does: soft shapes and a little noise."""
    coarse = rng.integers(0, 256, (10, 12, 3), np.uint8)
    soft = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    return np.clip(soft + rng.normal(0, 2, soft.shape), 0, 255).astype(np.uint8)


def make_dataset(root: Path) -> Dataset:
    """One video of PNG frames; the view is its square middle."""
    rng = np.random.default_rng(0)
    frames = []
    for index in range(FRAMES):
        path = root / f"{index:03d}.png"
        cv2.imwrite(str(path), scene(rng))
        frames.append(Frame(index, index, image=path))
    view = View((WIDTH - HEIGHT) // 2, 0, HEIGHT, HEIGHT)
    table = ClassTable(("tissue",), ((0, 0, 0),), {0: 0})
    return Dataset("benchmark", root, table, [Video("v", "c", frames, view_setting=view)])


def milliseconds(read: Callable[[str, int], np.ndarray], count: int) -> float:
    """Of one random access, with its pixels really copied into memory of its own."""
    order = np.random.default_rng(1).integers(0, FRAMES, count).tolist()
    for index in range(FRAMES):
        read("v", index)
    start = time.perf_counter()
    for index in order:
        read("v", index).copy()
    return (time.perf_counter() - start) / count * 1000


def copying(count: int) -> float:
    """Milliseconds that this core takes to copy so many bytes, as a share of many more than its caches hold."""
    source = np.ones(2**27, np.uint8)
    target = np.empty_like(source)
    return seconds(lambda: np.copyto(target, source)) * count / len(source) * 1000


def main() -> None:
    """Build a small store and read it."""
    file = parser(__doc__).parse_args().json
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_dataset(Path(folder))
        start = time.perf_counter()
        store = FrameStore.open(dataset, {"v": range(FRAMES)}, {}, SIZE, cache=Path(folder) / "cache", progress=False)
        built = time.perf_counter() - start
        video, fit = dataset["v"], Fit.of(dataset["v"], SIZE)
        decoded = milliseconds(lambda _, index: fit.frame(video.read(index), index), FRAMES)
        stored = milliseconds(store.frame, 20 * FRAMES)
        floor = copying(3 * SIZE * SIZE)
        size = sum(path.stat().st_size for path in Path(folder).glob("*.png")) / FRAMES / 1e6
    print(f"{FRAMES} PNG frames of {WIDTH}x{HEIGHT} ({size:.1f} MB each), stored at {SIZE}x{SIZE} in {built:.1f} s")
    print(f"decoding and resizing {decoded:8.3f} ms per frame")
    print(f"frame store           {stored:8.3f} ms per frame")
    print(f"a copy of its bytes   {floor:8.3f} ms per frame")
    print(f"ratio                 {decoded / stored:8.0f}x (promised {PROMISED:.0f}x)")
    figures = {"size": SIZE, "decoded_ms": decoded, "stored_ms": stored, "floor_ms": floor}
    report("store", figures, file)


if __name__ == "__main__":
    main()
