"""``python -m sparklog.cli`` is the command ``sparklog``."""

import sys

from sparklog.cli.main import main

sys.exit(main())
