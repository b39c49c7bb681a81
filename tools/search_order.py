"""The order of the results of the site's search: guides, then reference and formats. Design notes are not found.

mkdocs runs this file as a hook. The theme's search multiplies a page's score by `boost`, and leaves out a page with
`exclude`; both are usually written into each page. Here the section of the navigation decides, so a new page needs
nothing. `tools/check_site.py` searches the built site in a browser.
"""

from __future__ import annotations

from typing import Any

BOOSTS = {"Start": 4.0, "Library": 4.0, "Server": 4.0, "Spark": 4.0, "Operations": 4.0, "Reference": 1.0}
"""The boost of the pages of a section."""
FIRST = {
    "five-minutes.md": 12.0, "store.md": 12.0, "workers.md": 12.0, "sizes.md": 8.0, "operations.md": 16.0,
    "web.md": 7.0, "spark.md": 6.0,
}  # fmt: skip
"""The guides to which most questions lead."""
REST = 0.25
"""The boost of the others: formats, design, pages in other languages, the page of each class."""
LISTS = {"glossary.md", "redis-source.md", "measured.md", "conformance.md", "compatibility.md"}
"""Long lists, which contain every word."""
NOTES = "design/0"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Set the boost of a page by its section."""
    path: str = page.file.src_uri
    top = page.ancestors[-1].title if page.ancestors else ""
    boost = REST if path in LISTS or path.startswith("zh/") else FIRST.get(path) or BOOSTS.get(top, REST)
    page.meta.setdefault("search", {"exclude": True} if path.startswith(NOTES) else {"boost": boost})
    return markdown
