"""Searches over the space of choices and knobs, which request points and learn from times."""
