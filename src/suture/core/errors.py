"""The one exception that means "the user can mend this", and what the system's own mean."""

import errno
from pathlib import Path


class UserError(Exception):
    """A mistake in the user's data, config or command.

    Its text is one sentence that names the file or key, says what was found and what was expected, and how to mend
    it. The command line prints it without a traceback and exits with 2.
    """


def is_full(error: OSError) -> bool:
    """Whether there is no room for what was to be written."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def describe_os_error(error: OSError, folder: Path | None = None) -> str:
    """The beginning of a sentence about what the system refused: which file, or at least in which folder, and why."""
    if is_full(error):
        place = error.filename or folder
        return f"The disk is full ({place})" if place else "The disk is full"
    return f"{error.filename} cannot be read or written ({error.strerror})" if error.filename else str(error)
