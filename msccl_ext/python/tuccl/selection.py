"""The choice that a running job makes from a table, by the code that the plugins use."""

from tuccl._native import Selector, check_table_folder

__all__ = ["Selector", "check_table_folder"]
