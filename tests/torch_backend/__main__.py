"""Ranks of a test (ranks.py)."""

import os
import sys

from tests.torch_backend.ranks import fork_all, run

(run if "RANK" in os.environ else fork_all)(sys.argv[1])
