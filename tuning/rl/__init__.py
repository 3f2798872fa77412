"""Learning over machines: the state of a call, an environment, and policies that propose points."""
