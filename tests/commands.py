"""Commands and scripts in processes of their own, as a test starts, signals and kills them."""

import atexit
import multiprocessing
import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Forked from a server that has imported once what takes seconds: real processes, without eight seconds of work each.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["suture.training.train", "suture.reports.scores_section", "suture.prediction.predict", "torch.utils.tensorboard"]
)


@contextmanager
def started(
    *words: object, said: Path, printed: Path | None = None, folder: Path | None = None, **environment: str
) -> Iterator[Any]:
    """`suture …`, or a script and what it is given, in a session of its own; it does not outlive the `with`.

    Its errors go into a file, and so does what it prints, into the same one if no other is named.
    """
    where = (str(folder or Path.cwd()), os.environ | environment)
    process = CONTEXT.Process(target=_run, args=([str(word) for word in words], *where, said, printed or said))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _run(words: list[str], folder: str, environment: Mapping[str, str], said: Path, printed: Path) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((printed, sys.stdout), (said, sys.stderr)):
        with path.open("a") as file:
            os.dup2(file.fileno(), stream.fileno())
    sys.argv = words
    try:
        if words[0] == "suture":
            from suture.cli import main  # only here, as it looks at the environment

            main()
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # as a process of Python's own does, but not one that is forked
