"""The manifest of an append-only log: which files make it up, in which order (Redis 7: aof.c).

    appendonlydir/
      appendonly.aof.manifest         one line a file:  file <name> seq <n> type <b|h|i>
      appendonly.aof.2.base.rdb       type b: the data set when the log was last rewritten
      appendonly.aof.3.incr.aof       type i: the commands since; several while it is rewritten, or after a failure
      appendonly.aof.1.base.rdb       type h: history, no longer needed, to be removed
      temp-appendonly.aof.manifest    the next manifest, not yet in force; files with this prefix are left by a crash

A name with blanks or quotes is written in double quotes, lines that begin with # are comments, and unknown keys are
skipped with their values.

`commit` puts a manifest and its new files in force. Each step is on the disk before the next one begins:

    1. the draft, synced                    2. new files get their names
    3. the folder, synced                   4. the draft becomes the manifest, and the folder is synced again

So a manifest never names a missing or partial file. A crash between steps 2 and 4 of the first commit leaves files that
no manifest names, but also the draft. `recover` then completes the commit if all files of the draft exist, and
otherwise removes them. Without a draft such files mean damage.

Bases and incremental files have separate numbers. A number is used again only for a file that no manifest has named.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from rillet.errors import LogCorrupt
from rillet.persistence.disk import REAL, Disk, write_file
from rillet.protocol.command_parser import split_args

_PLAIN = re.compile(r"[!#-&(-\[\]-~]+")  # names that need no quotes (sds.c: sdsneedsrepr)
_LONGEST_LINE = 1024  # bytes (aof.c: MANIFEST_MAX_LINE)
_ESCAPES = {ord("\\"): "\\\\", ord('"'): '\\"', 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"}


@dataclass(frozen=True, slots=True)
class LogFile:
    """A line of the manifest: file name, sequence number, and type b, h or i."""

    name: str
    seq: int
    type: str

    def line(self) -> str:
        """Return the line as Redis writes it (aofInfoFormat)."""
        name = self.name if _PLAIN.fullmatch(self.name) else _quoted(self.name)
        return f"file {name} seq {self.seq} type {self.type}\n"


def _quoted(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")
    return '"' + "".join(_ESCAPES.get(one, chr(one) if 32 <= one < 127 else f"\\x{one:02x}") for one in raw) + '"'


@dataclass(frozen=True, slots=True)
class AofManifest:
    """The files of a log, as its manifest lists them; immutable. base_seq, incr_seq: the highest numbers used."""

    base: LogFile | None = None
    history: tuple[LogFile, ...] = ()
    incrs: tuple[LogFile, ...] = ()
    base_seq: int = 0
    incr_seq: int = 0

    @property
    def files(self) -> list[LogFile]:
        """The lines of the manifest, in Redis's order (getAofManifestAsString)."""
        return [*([self.base] if self.base else ()), *self.history, *self.incrs]

    @property
    def loaded(self) -> list[LogFile]:
        """The files to load at the start, in order: the base, then the incremental files."""
        return [*([self.base] if self.base else ()), *self.incrs]

    def with_incr(self, name: str) -> AofManifest:
        """Return the manifest with a new incremental file of the log `name` (getNewIncrAofName)."""
        seq = self.incr_seq + 1
        return replace(self, incrs=(*self.incrs, LogFile(f"{name}.{seq}.incr.aof", seq, "i")), incr_seq=seq)

    def with_base(self, name: str, as_rdb: bool, keep: int) -> AofManifest:
        """Return a manifest whose new base replaces the old base and all incremental files but the last `keep`.

        aof.c: getNewBaseFileNameAndMarkPreAsHistory, markRewrittenIncrAofAsHistory.
        """
        seq = self.base_seq + 1
        base = LogFile(f"{name}.{seq}.base.{'rdb' if as_rdb else 'aof'}", seq, "b")
        rewritten = len(self.incrs) - keep
        gone = [replace(one, type="h") for one in (*self.incrs[:rewritten], *([self.base] if self.base else ()))]
        return replace(self, base=base, base_seq=seq, history=(*gone, *self.history), incrs=self.incrs[rewritten:])

    def without_history(self) -> AofManifest:
        """Return the manifest without its history files."""
        return replace(self, history=())


def draft_of(path: Path) -> Path:
    """Return the path of the draft of the next manifest."""
    return path.with_name(f"temp-{path.name}")


def read_manifest(path: Path, disk: Disk = REAL) -> AofManifest:
    """Parse the manifest; LogCorrupt names the offset of an invalid line.

    aof.c: aofLoadManifestFromFile, with its error texts.
    """
    with disk.read_from(path) as file:
        text = file.read()
    if not text:
        raise LogCorrupt(str(path), 0, "Found an empty AOF manifest")
    made = AofManifest()
    offset = 0
    while offset < len(text):
        end = text.find(b"\n", offset) + 1 or len(text)
        raw = text[offset:end]
        if not raw.startswith(b"#"):
            try:
                made = _with_line(made, raw)
            except ValueError as error:
                raise LogCorrupt(str(path), offset, str(error)) from None
        offset = end
    return made


def _with_line(made: AofManifest, raw: bytes) -> AofManifest:
    if len(raw) > _LONGEST_LINE or not raw.endswith(b"\n"):
        raise ValueError("The AOF manifest file contains too long line")
    words = split_args(raw.strip(b" \t\r\n"))
    if words is None or len(words) < 6 or len(words) % 2:
        raise ValueError("Invalid AOF manifest file format")
    found = {key.lower(): value for key, value in zip(words[::2], words[1::2], strict=True)}
    name = os.fsdecode(found.get(b"file", b""))
    seq, kind = found.get(b"seq", b""), os.fsdecode(found.get(b"type", b""))[:1]
    if not name or not kind or not seq.isdigit() or len(seq) > 18 or not int(seq):
        raise ValueError("Invalid AOF manifest file format")
    if "/" in name or os.sep in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"File can't be a path, just a filename: {name!r}")
    return _with_file(made, LogFile(name, int(seq), kind))


def _with_file(made: AofManifest, file: LogFile) -> AofManifest:
    if file.type == "b":
        if made.base is not None:
            raise ValueError("Found duplicate base file information")
        return replace(made, base=file, base_seq=file.seq)
    if file.type == "h":
        return replace(made, history=(*made.history, file))
    if file.type != "i":
        raise ValueError("Unknown AOF file type")
    if file.seq <= made.incr_seq:
        raise ValueError("Found a non-monotonic sequence number")
    return replace(made, incrs=(*made.incrs, file), incr_seq=file.seq)


def commit(path: Path, manifest: AofManifest, moves: list[tuple[str, str]], disk: Disk = REAL) -> None:
    """Put a manifest in force; moves: (old name, new name) of each file that no earlier manifest named.

    On return the manifest is on the disk. After OSError the old manifest is in force, or, if the last sync failed,
    possibly the new manifest.
    """
    folder, draft = path.parent, draft_of(path)
    text = "".join(file.line() for file in manifest.files)
    write_file(disk, draft, [text.encode("utf-8", "surrogateescape")])
    if moves:
        disk.sync_folder(folder)
        for old, new in moves:
            disk.rename(folder / old, folder / new)
    disk.sync_folder(folder)
    disk.rename(draft, path)
    disk.sync_folder(folder)


def recover(path: Path, disk: Disk = REAL) -> None:
    """Complete or undo the first commit of a log after a crash; do nothing if there is a manifest."""
    draft = draft_of(path)
    if disk.exists(path) or not disk.exists(draft):
        return
    try:
        files = read_manifest(draft, disk).files
    except LogCorrupt:
        files = []  # the draft is incomplete, so no file was renamed
    there = [file.name for file in files if disk.exists(path.parent / file.name)]
    if files and len(there) == len(files):
        disk.rename(draft, path)
    else:
        for name in there:
            disk.remove(path.parent / name)
        disk.remove(draft)
    disk.sync_folder(path.parent)
