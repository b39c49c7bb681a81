"""Run the console script as `python -m rillet`, for environments whose scripts folder is not on the path."""

from __future__ import annotations

import sys

from rillet.cli import main

sys.exit(main())
