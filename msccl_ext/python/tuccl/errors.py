"""The errors tuccl raises on purpose; each message is one line: what, where, what was expected."""

from tuccl._native import InputError, Stuck, TucclError

__all__ = ["Infeasible", "InputError", "Stuck", "TucclError", "Unavailable"]


class Infeasible(TucclError):
    """No program exists under the given sketch, dialect or knobs; the message names the rule."""


class Unavailable(TucclError):
    """Something this machine lacks (an extra, a device, a privilege); says how to get it."""
