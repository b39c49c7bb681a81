"""Write the asyncio API, or with --check report what is not up to date. `python -m tools.make_aio`"""

from __future__ import annotations

import argparse
import sys

from tools.make_aio import generated
from tools.make_aio.config import ROOT


def main() -> int:
    """Write the files, or with --check report those that differ; return 1 if one does."""
    parser = argparse.ArgumentParser(description="Write the asyncio API from the synchronous API.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is not up to date")
    options = parser.parse_args()
    stale = []
    for path, text in generated().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        state = "not up to date: run python -m tools.make_aio" if options.check else "written"
        print(f"{path.relative_to(ROOT)}: {state}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
