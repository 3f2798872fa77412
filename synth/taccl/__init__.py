"""TACCL's method: routing, ordering and contiguity as CP-SAT models."""
