"""The command line behind a line on stderr: an interrupt after that line reaches `main`."""

from __future__ import annotations

import sys
from typing import Any

from rillet import cli


def main() -> int:
    """Print the line, and run the command."""
    sys.unraisablehook = _but_interrupts
    print("here", file=sys.stderr, flush=True)
    return cli.main()


def _but_interrupts(found: Any) -> None:
    """Report what cannot be raised, except interrupts: Python's own callbacks of an import cannot raise them."""
    if found.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(found)
