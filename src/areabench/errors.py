"""The errors a user can mend: one line that names the value, the limit and the remedy."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a machine that lacks something; shown as one line, without traceback, exit code 2."""


class RunFileError(UserError):
    """A run file that cannot be read, or must not be written."""


class RunFailure(Exception):
    """A run that failed; the message says everything, a traceback of the place would only hide it. Exit code 1."""
