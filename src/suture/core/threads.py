"""How the threads of a training wait for each other."""

import os


def use_passive_openmp_wait() -> None:
    """Let OpenMP's threads sleep meanwhile, unless the environment says otherwise; in vain once torch is imported.

    In busy loops, as they wait by default, they make a step of training several times slower on a CPU that others use
    too. Awake they are a few milliseconds faster at a single frame.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
