"""OpenMP settings."""

import os


def use_passive_openmp_wait() -> None:
    """Let waiting OpenMP threads sleep, unless the environment sets a policy. Call it before torch is imported.

    Busy waiting, OpenMP's default, slows training several times on a CPU that is shared with other work. It saves a
    few milliseconds on a single frame.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
