"""The exception for mistakes that a user can fix, and messages for errors of the operating system."""

import errno
from pathlib import Path


class UserError(Exception):
    """A mistake in the user's data, config or command.

    Its text names the file or key, what was read, what was expected and how to fix it. The command line prints it
    without a traceback and exits with 2.
    """


def is_full(error: OSError) -> bool:
    """Test whether an error means that the disk or quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def describe_os_error(error: OSError, folder: Path | None = None) -> str:
    """Begin a message about a failed system call: the file or folder, and the reason."""
    if is_full(error):
        place = error.filename or folder
        return f"The disk is full ({place})" if place else "The disk is full"
    return f"{error.filename} cannot be read or written ({error.strerror})" if error.filename else str(error)
