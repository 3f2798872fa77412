"""``python -m tuccl.cli``."""

import sys

from tuccl.cli import main

sys.exit(main())
