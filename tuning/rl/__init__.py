"""Learning over machines: the state of a call, and policies that propose points."""
