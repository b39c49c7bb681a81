"""Figures for programs: one line of JSON for each result, as `--json` of the commands prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any


def print_json(facts: Mapping[str, Any]) -> None:
    """Print a line of JSON; paths are text, and so are bytes, with surrogates for those that are not UTF-8."""
    print(json.dumps(facts, default=_json), flush=True)


def _json(value: object) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
