"""Settings and fixtures of all tests: one thread per process, no network, an own cache folder, the shared data."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Set before torch and huggingface_hub are imported, and inherited by xdist's workers and by the processes tests start:
# as many processes as cores run at once, and results on one thread are the same on every machine.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
# Otherwise each of many processes would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import cv2
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

cv2.setNumThreads(1)
sys.dont_write_bytecode = False
# A shell that puts the tests into the background has them, and all that they start, ignore Ctrl-C, which some test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples everywhere, so that a failure in CI is a failure at home. To look further:
# pytest --hypothesis-profile explore
settings.register_profile("suture", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("suture")


TESTS = Path(__file__).parent
SLOW = {
    "annotate/test_open_run.py",
    "checks/test_check.py",
    "cli/test_cli.py",
    "cli/test_cli_train.py",
    "comparison/test_compare.py",
    "data/test_find_view.py",
    "data/test_shots.py",
    "data/test_store.py",
    "methods/test_capture.py",
    "methods/test_encoders.py",
    "methods/test_method.py",
    "methods/test_pgvcl.py",
    "methods/test_pgvcl_plain.py",
    "methods/test_pixpro.py",
    "methods/test_precision.py",
    "methods/test_propagate.py",
    "methods/test_stage.py",
    "models/test_encoder_weights.py",
    "models/test_fold_batch_norms.py",
    "models/test_segmenter.py",
    "prediction/test_export.py",
    "prediction/test_predict_again.py",
    "prediction/test_predict_onnx.py",
    "prediction/test_process_writer.py",
    "reports/test_embeddings.py",
    "reports/test_page.py",
    "reports/test_pseudo_section.py",
    "reports/test_report.py",
    "studio/test_studio_page.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_library.py",
    "test_public_datasets.py",
    "test_wheel.py",
    "training/test_adapt.py",
    "training/test_best.py",
    "training/test_evaluate_again.py",
    "training/test_killed.py",
    "training/test_processes.py",
    "training/test_resume.py",
    "training/test_run.py",
    "training/test_run_folder.py",
}
"""Modules that train, start a browser or wait for processes; `make test-fast` leaves them out."""


def _is_slow(path: Path) -> bool:
    return path.is_relative_to(TESTS) and str(path.relative_to(TESTS)) in SLOW


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow modules unimported where no slow test is wanted."""
    return True if "not slow" in config.option.markexpr and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item.path):
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Frame stores and other caches of the tests stay out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUTURE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _modules_are_no_garbage() -> Iterator[None]:
    """To look again and again for garbage among a million objects that stay takes a twentieth of the tests' time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and weights that lies beside the repository where there is one."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the real data in ../shared, which is not here")
    return folder


CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """Headless Chromium; per module, as Playwright's event loop would disturb other tests of the process."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "Browser") -> Iterator["Page"]:
    """New tab of 1280 pixels; errors, warnings, failed requests and requests to other hosts fail the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("requestfailed", lambda request: problems.append(request.url))
    local = ("file:", "data:", "http://127.0.0.1", "http://localhost")
    page.on("request", lambda request: None if request.url.startswith(local) else problems.append(request.url))
    yield page
    context.close()
    assert problems == []
