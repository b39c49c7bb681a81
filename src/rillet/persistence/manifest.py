"""The manifest of an append-only log: which files make it up, in which order (Redis 7: aof.c).

    appendonlydir/
      appendonly.aof.manifest         one line a file:  file <name> seq <n> type <b|h|i>
      appendonly.aof.1.base.rdb       type b: the data set when the log was last rewritten
      appendonly.aof.1.incr.aof       type i: the commands since
                                      type h: history, to be removed

A file name with blanks or quotes stands in double quotes. Lines that begin with # are comments.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rillet.errors import LogCorrupt

_PLAIN = re.compile(r"[A-Za-z0-9_.+:@%,=~-]+")
_LINE = re.compile(r'file (?:"((?:[^"\\]|\\.)*)"|([^\s"]+)) seq (\d+) type ([bhi])')


@dataclass(frozen=True, slots=True)
class LogFile:
    """A line of the manifest: file name, sequence number, and type b, h or i."""

    name: str
    seq: int
    type: str

    def line(self) -> str:
        """Return the line as Redis writes it."""
        name = self.name
        if not _PLAIN.fullmatch(name):
            name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
        return f"file {name} seq {self.seq} type {self.type}\n"


def read_manifest(path: Path) -> list[LogFile]:
    """Return the files that the manifest lists; LogCorrupt names the offset of a line that makes no sense."""
    files: list[LogFile] = []
    offset = 0
    for raw in path.read_bytes().splitlines(keepends=True):
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if text and not text.startswith("#"):
            match = _LINE.fullmatch(text)
            if match is None:
                raise LogCorrupt(str(path), offset, f"not a line of a manifest: {text[:60]!r}")
            name = match[2] if match[1] is None else re.sub(r"\\(.)", r"\1", match[1])
            if os.sep in name or name in (".", ".."):
                raise LogCorrupt(str(path), offset, f"a file outside the log's folder: {name!r}")
            files.append(LogFile(name, int(match[3]), match[4]))
        offset += len(raw)
    if sum(file.type == "b" for file in files) > 1:
        raise LogCorrupt(str(path), 0, "more than one base file")
    return files


def write_manifest(path: Path, files: list[LogFile]) -> None:
    """Replace the manifest in one step: a reader sees the old one or the new one, on disk when this returns."""
    draft = path.with_name("temp_" + path.name)
    with open(draft, "w", encoding="utf-8") as out:
        out.writelines(file.line() for file in files)
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the folder's own entries on disk, so that a created or renamed file outlives a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
