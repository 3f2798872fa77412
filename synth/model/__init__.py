"""The nouns of synthesis: problem, network, schedule, symmetry, and proof of a schedule."""
