"""Whether the package index has rillet and the site exists, and the texts that depend on it: one switch for all.

    python -m tools.published     write these texts, after a change of PUBLISHED

A file may name `pip install rillet` or the address of the site only through this list. `pip install "rillet[extra]"` is
not such a text: pip adds the packages of an extra to an installed rillet without a request to the index for rillet.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PUBLISHED = False

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/rillet/rillet"
SITE = "https://rillet.github.io/rillet/"
SOURCE = f"git+{REPOSITORY}"


class Text(NamedTuple):
    """A text of a file: what it says until rillet is published, and what it says then."""

    path: str
    until: str
    then: str


_REMEDY = "pip install --force-reinstall --no-deps --no-cache-dir"
TEXTS = (
    Text(
        "README.md",
        f"rillet is not on the package index yet. Install it from its repository:\n\n```\npip install {SOURCE}\n```\n",
        "```\npip install rillet\n```\n",
    ),
    Text("README.md", "Documentation: [docs/](docs/index.md). ", f"Documentation: <{SITE}>, [docs/](docs/index.md). "),
    Text(
        "docs/install.md",
        f"rillet is not on the package index yet. Install it from its repository:\n\n```\npip install {SOURCE}\n```\n",
        "```\npip install rillet\n```\n",
    ),
    Text("docs/index.md", f"```\npip install {SOURCE}\n```\n", "```\npip install rillet\n```\n"),
    Text("docs/zh/index.md", f"```\npip install {SOURCE}\n```\n", "```\npip install rillet\n```\n"),
    Text("docs/install.md", f"{_REMEDY} {SOURCE}`", f"{_REMEDY} rillet`"),
    Text("docs/deployment.md", f'pip install "rillet[server] @ {SOURCE}"\n', 'pip install "rillet[server]"\n'),
    Text("src/rillet/__init__.py", f'"{_REMEDY} {SOURCE}"', f'"{_REMEDY} rillet"'),
    Text("setup.py", f"{_REMEDY} {SOURCE}\\n", f"{_REMEDY} rillet\\n"),
    Text("pyproject.toml", f'Documentation = "{REPOSITORY}/tree/main/docs"\n', f'Documentation = "{SITE}"\n'),
    Text("mkdocs.yml", "site_url:  # the site does not exist yet\n", f"site_url: {SITE}\n"),
)


def rewritten(path: str, content: str, published: bool) -> str:
    """Return the content of a file with its texts in the wanted state."""
    for text in TEXTS:
        if text.path == path:
            old, new = (text.until, text.then) if published else (text.then, text.until)
            content = content.replace(old, new)
    return content


def main() -> None:
    """Write the texts of every file as PUBLISHED says."""
    for path in sorted({text.path for text in TEXTS}):
        content = (ROOT / path).read_text(encoding="utf-8")
        wanted = rewritten(path, content, PUBLISHED)
        if wanted != content:
            (ROOT / path).write_text(wanted, encoding="utf-8")
            print(f"written: {path}")


if __name__ == "__main__":
    main()
