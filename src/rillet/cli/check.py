"""`rillet check PATH [--repair] [--salvage OUT]`: check the files of a store or server for damage.

PATH is the directory of a store or a server, the folder or the manifest of a log, a log of one file, or an RDB file.
The command changes nothing without --repair. With --repair, it cuts a file before its torn last record, and keeps a
copy of the original file beside it.

With --salvage, it writes everything sound around any damage to OUT: an RDB file if OUT ends with .rdb, otherwise the
directory of a new store, which rillet.open, rillet serve and redis-server --appendonly yes can open. It lists the bytes
that were lost, with the keys and the number of commands if they are known. PATH is not changed.

Exit status: 0 no damage (or repaired, or nothing lost), 1 damage, 2 nothing could be checked.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rillet.cli.output import coloured, guarded, json_argument
from rillet.errors import NewerFormat, NotAStore, StoreError
from rillet.host.directory import MARKER, check_marker
from rillet.persistence.checking import MANY_DATABASES, CheckReport, Damage, check, repair
from rillet.persistence.rdb.reader import kept_of
from rillet.persistence.rdb.writer import write_rdb
from rillet.persistence.salvage import salvage
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.display.json_line import print_json
from rillet.store.display.progress import ProgressBar
from rillet.transfer.key_transfer import write_directory

SOUND, DAMAGED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH",
                        help="a directory of a store or server, a log, or an RDB file")  # fmt: skip
    parser.add_argument("--repair", action="store_true", help="remove a torn last record; a copy of the file is kept")
    parser.add_argument("--salvage", type=Path, metavar="OUT",
                        help="write everything sound to OUT, a new directory or an RDB file")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quiet", action="store_true", help="print damage only")
    json_argument(form)


def run(options: argparse.Namespace) -> int:
    """Check the files, print the report, repair torn files on request; return the exit status."""
    return guarded(lambda: _run(options), place=options.path)


def _run(options: argparse.Namespace) -> int:
    path: Path = options.path
    if options.salvage is not None:
        return _salvage(path, options.salvage, options.quiet, options.json)
    report = _checked(path)
    if not options.json:
        _print(report, options.quiet)
    repaired = []
    if options.repair and any(damage.torn for damage in report.damages):
        for damage in report.damages:
            if damage.torn:
                copy = repair(path, damage)
                repaired.append({"path": damage.path, "cut_to": damage.offset, "copy": copy})
                if not options.json:
                    print(f"repaired: {damage.path} was cut to {damage.offset} bytes; copy of the original: {copy}")
        report = _checked(path)
        if not options.json:
            _print(report, quiet=True)
    if options.json:
        print_json({"path": path, "sound": report.sound, **asdict(report), "repaired": repaired})
    elif report.sound and not options.quiet:
        print(coloured("sound", "green"))
    return SOUND if report.sound else DAMAGED


def _salvage(path: Path, out: Path, quiet: bool, as_json: bool) -> int:
    """Write the sound data of a damaged file or directory to `out`, and print the losses; return the exit status."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(f"{out} exists: --salvage expects a new name")
    if path.resolve() in (out.resolve(), *out.resolve().parents):
        raise StoreError(f"{out} is inside {path}: --salvage does not change the damaged files")
    engine = Engine(Settings(databases=MANY_DATABASES, aof_checksums=True, rdb_foreign="keep"))
    report = salvage(path, engine)
    try:
        if out.suffix == ".rdb":
            write_rdb(out, engine)
        else:
            write_directory(out, engine)
    finally:
        if report.segments is not None:
            report.segments.close()
    if as_json:
        print_json({"path": path, "out": out, "keys": report.keys, "commands": report.commands,
                    "losses": report.losses, "remarks": report.remarks})  # fmt: skip
        return DAMAGED if report.losses else SOUND
    for loss in report.losses:
        print(f"{coloured('LOST', 'red')} {loss}")
    for line in [] if quiet else report.remarks:
        print(line)
    lost = sum(loss.end - loss.start for loss in report.losses)
    commands = sum(loss.commands for loss in report.losses)
    said = f"{report.keys:,} keys" + (f" after {report.commands:,} commands" if report.commands else "")
    places = f"{len(report.losses)} place{'s' if len(report.losses) != 1 else ''}"
    said += f"; lost: {lost:,} bytes in {places}" if report.losses else "; nothing was lost"
    print(f"{out}: {said}" + (f", with {commands:,} command{'s' if commands != 1 else ''}" if commands else ""))
    kept = kept_of(engine)
    if kept.values or kept.before or kept.after:
        print(f"{out} has modules' data: rillet opens it with rdb-foreign keep or skip")
    return DAMAGED if report.losses else SOUND


def _checked(path: Path) -> CheckReport:
    with ProgressBar(f"{path.name}: checking") as bar:
        report = check(path, bar)
    if (path / MARKER).is_file():
        try:
            check_marker(path)
        except (NotAStore, NewerFormat) as error:
            report.damages.append(Damage(path / MARKER, -1, str(error).removeprefix(f"{path / MARKER}: ")))
    return report


def _print(report: CheckReport, quiet: bool) -> None:
    for line in [] if quiet else [*report.read, *report.remarks]:
        print(line)
    for damage in report.damages:
        hint = "; --repair removes this torn record" if damage.torn else ""
        print(f"{coloured('DAMAGED', 'red')} {damage}{hint}")
