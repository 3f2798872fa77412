"""``python -m tuccl.cli``."""

import sys

from tuccl.cli.main import main

sys.exit(main())
