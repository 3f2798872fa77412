"""Methods known by name: ring, recursive, all-pairs, hierarchical."""
