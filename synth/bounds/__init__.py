"""Bounds that no schedule can beat: cuts, partitions, hops."""
