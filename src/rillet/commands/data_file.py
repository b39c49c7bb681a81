"""Tables of text in files beside their reader, for commands that few programs use: COMMAND DOCS and HELP.

A line that begins with `#` is a comment, and the last line is `# end`. The loader of the package reads a file, as in an
import: a missing or torn file is an ImportError, and a zip file of the package contains its data files.
"""

from __future__ import annotations

from functools import lru_cache
from pkgutil import get_data

END = "# end"


def read_lines(name: str) -> list[str]:
    """Return the lines of a file, named by its path in the package. ImportError: the file is missing or torn."""
    try:
        lines = (get_data("rillet", name) or b"").decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImportError(f"cannot read rillet/{name}: {error}. Install rillet again") from error
    if lines[-1:] != [END]:
        raise ImportError(f"rillet/{name} is torn: its last line is not `{END}`. Install rillet again")
    return [line for line in lines if not line.startswith("#")]


@lru_cache(maxsize=4)
def read_sections(name: str) -> dict[str, list[str]]:
    """Return the lines after each line `=title`, by title; a file is read once."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in read_lines(name):
        if line.startswith("="):
            lines = sections[line[1:]] = []
        else:
            lines.append(line)
    return sections
