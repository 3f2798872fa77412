"""TACCL's routing, ordering and contiguity as exact models."""
