"""The errors tuccl raises on purpose; each message is one line: what, where, what was expected."""

from tuccl._native import InputError, Stuck, TucclError

__all__ = ["Infeasible", "InputError", "Stuck", "TucclError", "Unavailable"]

TucclError.__doc__ = "The root of all errors that tuccl raises on purpose."
InputError.__doc__ = "Something given cannot be: a file, a name, a number; says what was expected."
Stuck.__doc__ = "A run made no progress, or took too long, and was ended."


class Infeasible(TucclError):
    """No program exists under the given sketch, dialect or knobs; the message names the rule."""


class Unavailable(TucclError):
    """Something this machine lacks (an extra, a device, a privilege); says how to get it."""
