"""The one exception that means "the user can mend this"."""


class UserError(Exception):
    """A mistake in the user's data, config or command.

    Its text is one sentence that names the file or key, says what was found and what was expected, and how to mend
    it. The command line prints it without a traceback and exits with 2.
    """
