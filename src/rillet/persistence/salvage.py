"""Salvage: loads everything sound of a damaged store, log or RDB file, and lists what was lost. Changes no file.

    rdb/record_scan.py     the records of an RDB file, and the gaps between them
    rdb/salvage.py         loads the records that are sound
    rdb/stream_salvage.py  the sound parts of a damaged stream
    aof/salvage.py         executes the commands of a log that are sound

The result is in an engine, so that it can be written as a new store or a new RDB file: a file that was sound from its
beginning cannot be damaged by what surrounded its parts. If the manifest of a log is damaged or missing, the files are
taken by their names: the newest base and all incremental files.
"""

from __future__ import annotations

import re
from pathlib import Path

from rillet.errors import LogCorrupt, StoreError
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.aof.salvage import salvage_log
from rillet.persistence.checking import NOT_LOADED, held
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.persistence.rdb.salvage import LostBytes, Salvaged, salvage_rdb
from rillet.runtime.engine import Engine

_LOG_FILE = re.compile(r"(.+)\.(\d+)\.(base|incr)\.(rdb|aof)")


def salvage(path: Path, engine: Engine) -> Salvaged:
    """Load the sound data of a file or directory into an empty engine. O(bytes); memory: the largest file, and the data

    StoreError: there is nothing to read, or the store is open.
    """
    report = Salvaged()
    with held(path):
        files = _files(path, report)
        if len(files) == 1 and files[0].suffix == ".rdb" and ".base." not in files[0].name:
            salvage_rdb(files[0], files[0].read_bytes(), engine, report)
        else:
            salvage_log(files, engine, report)
    report.keys = sum(map(len, engine.databases))
    # Streams still refer to the nodes in segments that can be read; what is written from them contains all nodes.
    report.segments, engine.segments = engine.segments, None
    return report


def _files(path: Path, report: Salvaged) -> list[Path]:
    """Return the files to read, in order; StoreError if there are none, or several alternatives."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    if not path.is_dir():
        if path.name.endswith(".manifest"):
            return _of_manifest(path, report)
        with open(path, "rb") as file:
            is_rdb = file.read(HEADER).startswith(MAGICS)
        if path.suffix not in (".rdb", ".aof") and not is_rdb:
            report.remarks.append(f"{path}: read as a log, because its name does not end with .rdb")
        return [path]
    manifests = [one for one in (*path.glob("*.manifest"), *path.glob("*/*.manifest"))
                 if not one.name.startswith("temp-") and NOT_LOADED not in one.parent.name]  # fmt: skip
    if len(manifests) > 1:
        names = ", ".join(sorted(one.name for one in manifests))
        raise StoreError(f"{path} holds more than one log: give one of {names}")
    if manifests:
        return _of_manifest(manifests[0], report)
    for folder in (path, *sorted(one for one in path.iterdir() if one.is_dir())):
        if found := _by_names(folder, ""):
            what = "the manifest of the log is missing: its files were taken by name"
            report.losses.append(LostBytes(folder, 0, 0, what))
            return found
    singles = sorted(path.glob("*.aof"))
    singles = singles or sorted(one for one in path.glob("*.rdb") if not one.name.startswith("temp-"))
    if len(singles) != 1:
        names = ", ".join(one.name for one in singles)
        what = f"more than one log or RDB file: give one of {names}" if singles else "neither a log nor an RDB file"
        raise StoreError(f"{path} holds {what}")
    return singles


def _of_manifest(manifest: Path, report: Salvaged) -> list[Path]:
    folder = manifest.parent
    try:
        files = [folder / file.name for file in read_manifest(manifest).loaded]
    except LogCorrupt as error:
        what = f"{error.reason}: the files of the log were taken by name"
        report.losses.append(LostBytes(manifest, error.offset, manifest.stat().st_size, what))
        return _by_names(folder, manifest.name.removesuffix(".manifest"))
    for file in files:
        if not file.exists():
            report.losses.append(LostBytes(file, 0, 0, "the file is missing"))
    return [file for file in files if file.exists()]


def _by_names(folder: Path, name: str) -> list[Path]:
    """Return the files of a log (of any log, if the name is empty) by their names: the newest base, then the others."""
    found = [(int(match[2]), match[3], one) for one in folder.iterdir()
             if (match := _LOG_FILE.fullmatch(one.name)) is not None and match[1] == (name or match[1])]  # fmt: skip
    bases = sorted(entry for entry in found if entry[1] == "base")
    return [entry[2] for entry in (*bases[-1:], *sorted(entry for entry in found if entry[1] == "incr"))]
