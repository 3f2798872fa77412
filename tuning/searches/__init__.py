"""Searches over the space of plans and knobs, which ask for points and learn from times."""
