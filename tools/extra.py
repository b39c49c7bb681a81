"""Print the packages of extras of pyproject.toml, one a line, with those of the extras that they include.

    python tools/extra.py server redis | pip install --requirement /dev/stdin

pip installs an extra only together with the package, so it would build rillet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tomllib

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def packages(extra: str) -> set[str]:
    """Return the requirements of the extra, without rillet itself."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found = set(project["dependencies"])
    for one in project["optional-dependencies"][extra]:
        if one.startswith("rillet["):
            for included in one.removeprefix("rillet[").removesuffix("]").split(","):
                found |= packages(included)
        else:
            found.add(one)
    return found


if __name__ == "__main__":
    print("\n".join(sorted(set().union(*map(packages, sys.argv[1:])))))
