"""The tests of the client run once: rillet.client is not compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.parent == FOLDER:
        item.add_marker(pytest.mark.once)
