"""Rewriting a log: a base of the data takes the place of the files that led to it."""

from __future__ import annotations

from rillet.engine import Engine
from rillet.persistence.aof import AppendOnlyLog
from rillet.persistence.base import write_base


def rewrite(log: AppendOnlyLog, engine: Engine) -> None:
    """Write a base of the engine's data into a log that is closed, in place of its files. O(data)"""
    log.manifest = log._find()
    log.disk.make_folder(log.folder)
    draft = f"temp-{log.name}.base"
    log.take_over(draft, write_base(log.folder / draft, engine, log.disk) == "rdb")
    log.remove_history()
