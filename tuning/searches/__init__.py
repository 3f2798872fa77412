"""Searches over the space of choices and knobs, which ask for points and learn from times."""
