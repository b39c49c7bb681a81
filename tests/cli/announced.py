"""The command line, which prints a line on stderr as soon as `main` handles interrupts."""

from __future__ import annotations

import sys
from typing import Any

from rillet import cli


def main() -> int:
    """Run the command, which prints the line at its begin."""
    sys.unraisablehook = _but_interrupts
    run = cli._run

    def announced(given: list[str]) -> int:
        print("here", file=sys.stderr, flush=True)
        return run(given)

    cli._run = announced
    return cli.main()


def _but_interrupts(found: Any) -> None:
    """Report what cannot be raised, except interrupts: Python's own callbacks of an import cannot raise them."""
    if found.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(found)
