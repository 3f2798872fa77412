"""The nouns of synthesis: problem, network, schedule, and proof of a schedule."""
