"""What no schedule can beat: cuts, partitions, hops."""
