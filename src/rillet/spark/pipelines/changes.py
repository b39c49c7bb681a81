"""changes: keeps every change of a server in an archive, and the value of every key in a table, each exactly once.

    changes(spark, archive="orders.changes", state="orders.state", url="redis://localhost")
    read_state(spark, "orders.state").where("type = 'hash'").show()

    server ══► received files ──► batch ─┬► tasks: rows into Parquet ──► commit of the archive     changes_archive.py
               (spark/changes)           └► engine: touched keys     ──► commit of the state       spark/state
                     ▲                                                      │
                     └────────────── deleted after both commits ◄───────────┘

The job calls the methods of the source's streaming reader itself, as `archive` does, and uses no checkpoint of Spark.
The manifest of each output holds the offset together with the list of files. The batch is applied to one output after
the other. If the job is killed between the two commits, the next run brings the other one to the same offset from the
received files, which are deleted after both.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.connection import Connection
from rillet.spark.archive.backends import FORMATS
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import OWN, Archive
from rillet.spark.archive.manifest import ArchiveManifest
from rillet.spark.option_types import duration, whole_number
from rillet.spark.options import OptionError
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.archive import SMALL_FILES, TARGET, FileOptions, merge_small
from rillet.spark.pipelines.archive_summary import ArchiveSummary
from rillet.spark.pipelines.tables import NOTHING, Progress, silent
from rillet.spark.pipelines.task_runner import TaskRunner, memory_of, struct_of
from rillet.spark.state.table import BUCKETS, StateCounts, StateFiles, StateTable, open_state, read_state
from rillet.store.display.json_line import print_json
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rillet.spark.changes.source import ChangesReader

BATCH_BYTES = 64 << 20
Offset = dict[str, Any]


@dataclass
class ChangesSummary:
    """The result of a run: what was archived, what was done to the state, and the last offset."""

    archive: ArchiveSummary = field(default_factory=ArchiveSummary)
    state: StateCounts = field(default_factory=StateCounts)
    batches: int = 0
    offset: int = -1

    def line(self) -> str:
        """Return the counts of a run as one line of text."""
        parts = []
        if self.archive.commits:
            parts.append(f"{counted(self.archive.entries, 'change')} archived in {counted(self.archive.files, 'file')}"
                         f" ({self.archive.bytes / 1e6:,.1f} MB)")  # fmt: skip
        if self.state.commits:
            parts.append(f"{counted(self.state.written, 'key')} written, {self.state.removed:,} removed")
        if self.state.refused:
            parts.append(f"{counted(self.state.refused, 'command')} could not be applied ({self.state.refusal})")
        return "; ".join(parts or ["no changes"]) + (f"; offset {self.offset}" if self.offset >= 0 else "")


class ArchiveOutput:
    """The archive of a job."""

    def __init__(self, path: str | Path, options: Mapping[str, str], columns: StructType, runner: TaskRunner,
                 files: FileOptions, done: ArchiveSummary) -> None:  # fmt: skip
        from rillet.spark.pipelines.changes_archive import stored_schema

        self.archive = Archive(path, column="db")
        self._options, self._columns, self._runner, self._files, self._done = options, columns, runner, files, done
        self._schema = stored_schema(columns)
        self._manifest = ArchiveManifest()

    @property
    def path(self) -> Path:
        return self.archive.path

    @property
    def offset(self) -> Offset:
        """The source's offset after the last commit; {} if there is none."""
        return self._manifest.offset

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the archive, and complete an interrupted commit."""
        with self.archive.writing() as manifest:
            if not self.archive.fits(manifest, self._schema):
                raise ArchiveError(f"rillet: the archive {self.path} has other columns, or holds no changes")
            self._manifest = manifest
            yield

    def batch(self, reader: ChangesReader, start: Offset, end: Offset) -> None:
        """Write a batch and commit it."""
        from rillet.spark.pipelines.changes_archive import write_task

        target, schema = self.archive.target(self._files.compression), self._columns.json()
        tasks = [(write_task, self._options, schema, one, target) for one in reader.partitions(start, end)]
        parts = [part for written in self._runner.work_for()(tasks) for part in written]
        self.archive.at("written")
        self._manifest = self.archive.append(self._manifest, parts, end, self._schema)
        self._done.entries += sum(part.rows for part in parts)
        self._done.bytes += sum(part.bytes for part in parts)
        self._done.files += len(parts)
        self._done.commits += 1

    def begin(self, offset: Offset) -> None:
        """Commit the offset at which a job begins that has not received a change yet: the next run continues there."""
        self._manifest = self.archive.append(self._manifest, [], offset, self._schema)

    def finish(self) -> None:
        """Merge small files."""
        self._manifest = merge_small(self.archive, self._manifest, self._files, self._runner, self._done)


class StateOutput:
    """The state table of a job."""

    def __init__(self, table: StateTable) -> None:
        self.table = table
        self._compat = ""

    @property
    def path(self) -> str | Path:
        return self.table.archive.path

    @property
    def offset(self) -> Offset:
        """The source's offset after the last commit; {} if there is none."""
        return self.table.offset

    def writing(self) -> Any:
        """Lock the table, and complete an interrupted commit."""
        return self.table.writing()

    def batch(self, reader: ChangesReader, start: Offset, end: Offset) -> None:
        """Apply a batch and commit it. A snapshot is a commit of its own."""
        from rillet.spark.changes.offsets import ChangesOffset
        from rillet.spark.changes.source import ChangesPartition, SnapshotPartition
        from rillet.spark.changes.storage import Storage

        tasks, last = reader.partitions(start, end), ChangesOffset.parse(end)
        folder = reader.options.folder
        parts = [one.part for one in tasks if isinstance(one, SnapshotPartition)]
        files = [one.file for one in tasks if isinstance(one, ChangesPartition)]
        if parts:
            after = last._replace(offset=last.since, db=0)
            self.table.load_snapshot(folder, last.run, parts, last.since, after.json())
        elif not self.offset or ChangesOffset.parse(self.offset).run != last.run:
            raise ArchiveError(f"rillet: the state table {self.path} needs a snapshot to begin with: give it "
                               "startingOffsets=snapshot, and a new archive or none")  # fmt: skip
        if files:
            self.table.apply(Storage(folder), files, self._compat_of(reader), end)

    def _compat_of(self, reader: ChangesReader) -> str:
        """Return the compat with the newest commands of the server's family."""
        if not self._compat:
            self._compat = "valkey" if is_valkey(reader) else "newest"
        return self._compat

    def begin(self, offset: Offset) -> None:
        """Do nothing: a table begins with a snapshot, which is a batch."""

    def finish(self) -> None:
        """Merge small files."""
        self.table.finish()


def is_valkey(reader: ChangesReader) -> bool:
    """Return whether the server is Valkey; False if the user may not run INFO."""
    with Connection(reader.options.address(), reader.options.timeout) as connection:
        (reply,) = connection.replies([[b"INFO", b"server"]])
    return isinstance(reply, bytes) and b"valkey_version:" in reply


def changes(
    spark: SparkSession | TaskRunner | None,
    *,
    archive: str | Path | None = None,
    state: str | Path | None = None,
    schema: str | StructType | None = None,
    every: float | None = None,
    stop: threading.Event | None = None,
    buckets: int = BUCKETS,
    small_files: int = SMALL_FILES,
    target_bytes: int = TARGET,
    compression: str = "zstd",
    keep_replaced: float | None = None,
    keep: float | None = None,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
    each_round: AbstractContextManager[Any] = NOTHING,
    **options: str,
) -> ChangesSummary:
    """Bring an archive of changes, a state table or both up to date: once, or every `every` seconds until `stop`.

    spark: a session, or None to read and write in this process, without Java. options: those of
    format("rillet.changes"); `folder` is by default in the first output's folder. With a state table, a new job begins
    with a snapshot. format: of the state table, `rillet` or `delta`, as for `archive`; storage_options: of its object
    store. schema: typed columns of added entries. buckets: of a new state table. keep: seconds; whole days
    that ended longer ago are removed from the archive. each_round: a context manager around each round.
    """
    if wrong := problems(archive, state, options):
        raise OptionError(f"rillet: {'; '.join(wrong)}")
    files = FileOptions(small_files, target_bytes, compression, keep_replaced, keep)
    table = None if state is None else open_state(state, format, storage_options)
    job = ChangesJob(
        archive, table, options, schema, TaskRunner.using(spark), files, buckets=buckets, stop=stop, progress=progress
    )  # fmt: skip
    with job.writing():
        while True:
            with each_round:
                job.round()
            if every is None or job.stop.wait(every):
                break
    return job.done


def problems(archive: str | Path | None, state: str | Path | None, options: Mapping[str, str]) -> list[str]:
    """Return the errors in a combination of arguments."""
    given = {name.lower(): value for name, value in options.items()}
    wrong = []
    if archive is None and state is None:
        wrong.append("give an archive, a state table, or both")
    if archive is not None and state is not None and Path(archive).absolute() == Path(state).absolute():
        wrong.append(f"the archive and the state table are the same folder: {archive}")
    if archive is None and "://" in str(state) and "folder" not in given:
        wrong.append("folder is missing: where received changes wait for their commit")
    if state is not None and "keys" in given:
        wrong.append("a state table has all keys, because commands may combine them: omit keys, or select rows")
    if state is not None and given.get("startingoffsets", "snapshot").lower() != "snapshot":
        wrong.append("a state table begins with a snapshot: omit startingOffsets")
    return wrong


class ChangesJob:
    """A run; use it inside `writing`, which locks the outputs."""

    def __init__(
        self, archive: str | Path | None, state: StateFiles | None, options: Mapping[str, str],
        schema: str | StructType | None, runner: TaskRunner, files: FileOptions, *, buckets: int = BUCKETS,
        stop: threading.Event | None = None, progress: Progress = silent,
    ) -> None:  # fmt: skip
        from rillet.spark.changes.options import parse_changes
        from rillet.spark.changes.source import ChangesReader
        from rillet.spark.pipelines.changes_archive import columns_of

        given = {name.lower() for name in options}
        first = archive if archive is not None else state.path if state is not None else ""
        defaults = {"folder": str(Path(first).absolute() / OWN / "received"), "maxBytesPerTrigger": str(BATCH_BYTES)}
        if state is not None:
            defaults["startingOffsets"] = "snapshot"
        options = {**{name: value for name, value in defaults.items() if name.lower() not in given}, **options}
        self.done = ChangesSummary()
        self.stop, self._progress = stop or threading.Event(), progress
        columns = columns_of(None if schema is None else struct_of(schema, runner))
        self._reader = ChangesReader(parse_changes(options), columns)
        self._outputs: list[ArchiveOutput | StateOutput] = []
        if archive is not None:
            self._outputs.append(ArchiveOutput(archive, options, columns, runner, files, self.done.archive))
        if state is not None:
            with Connection(self._reader.options.address(), self._reader.options.timeout) as connection:
                size = memory_of([connection])  # a batch of the table costs what its buckets hold
            work, tasks = runner.work_for(size=size), runner.parallelism_for(size=size)
            table = StateTable(state, work, tasks, buckets=buckets, keep_replaced=files.keep_replaced,
                               compression=files.compression)  # fmt: skip
            self.done.state = table.counts
            self._outputs.append(StateOutput(table))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the outputs; at the end, stop to receive."""
        with ExitStack() as stack:
            for output in self._outputs:
                stack.enter_context(output.writing())
            stack.callback(self._reader.stop)
            yield

    def round(self) -> None:
        """Take the changes that the server has now, until `stop` is set."""
        from rillet.spark.spark_versions import ReadAllAvailable

        reader = self._reader
        reader.prepareForTriggerAvailableNow()
        start = self._caught_up()
        while True:
            end = reader.latestOffset(start, ReadAllAvailable())
            if end == start:
                break
            self._batch(self._outputs, start, end)
            start = end
            if self.stop.is_set():
                return
        beginning = reader.beginning()
        for output in self._outputs:
            if not output.offset and beginning is not None:
                output.begin(beginning)
            output.finish()

    def _caught_up(self) -> Offset:
        """Bring the state to the offset of the archive, which is committed first; return the common offset."""
        from rillet.spark.read.data_loss import DataLoss

        initial = self._reader.initialOffset()
        ahead = next((output.offset for output in self._outputs if output.offset), initial)
        for output in self._outputs:
            offset = output.offset or initial
            if offset == ahead or (isinstance(output, ArchiveOutput) and offset == initial):
                continue  # a new archive beside a state table begins with the next change
            try:
                self._batch([output], offset, ahead)
            except DataLoss as error:
                raise ArchiveError(
                    f"rillet: {output.path} is at another offset than {self._outputs[0].path}, and the changes between "
                    f"them are no longer there: use new folders, or one job for each. {error}"
                ) from None
        return ahead

    def _batch(self, outputs: Sequence[ArchiveOutput | StateOutput], start: Offset, end: Offset) -> None:
        for output in outputs:
            output.batch(self._reader, start, end)
        self._reader.commit(end)
        self.done.batches += 1
        self.done.offset = int(end["offset"])
        self._progress(self.done.archive.entries + self.done.state.written, None)


# -- the command -----------------------------------------------------------------------------------------------------

SMALL_WITHOUT_SPARK = True
EPILOG = """examples:
  rillet pipeline changes --url redis://localhost --archive orders.changes --every 30s
  rillet pipeline changes --url redis://localhost --state orders.state
  rillet pipeline changes --url redis://localhost --archive orders.changes --state orders.state --every 1m
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("source").add_argument
    group("--url", required=True, help="redis://[user:password@]host[:port], rediss://, unix://")
    group("--keys", metavar="GLOBS", help="archive only these keys: globs, separated by commas")
    group("--starting-offsets", metavar="WHERE",
          help="the beginning of a new job: latest, snapshot or a position "
               "(default: latest; with --state snapshot)")  # fmt: skip
    group("--folder", help="where received changes wait for their commit (default: in the first output)")
    group("--option", type=cli_arguments.name_value, action="append", default=[], metavar="NAME=VALUE",
          help="any other option of format('rillet.changes'); may be repeated (docs/spark-changes.md)")  # fmt: skip
    add = parser.add_argument_group("changes").add_argument
    add("--archive", type=cli_arguments.local_folder, metavar="FOLDER", help="append all changes to this archive")
    add("--state", type=cli_arguments.folder_or_url, metavar="FOLDER",
        help="keep the value of every key in this table: a folder, or a Delta table's URL")  # fmt: skip
    add("--format", choices=FORMATS, help="of the table: rillet, or delta (a MERGE for each batch)")
    cli_arguments.storage_option(add)
    add("--schema", help="typed columns of added entries, for the archive: 'carrier string, delay double'")
    add("--every", type=duration, metavar="TIME", help="keep running, with a batch every 30s, 5m ...")
    add("--keep", type=duration, metavar="TIME", help="remove days from the archive that ended longer ago: 90d")
    add("--buckets", type=whole_number(1), default=BUCKETS, metavar="N",
        help=f"the number of files of a new state table (default: {BUCKETS})")  # fmt: skip
    cli_arguments.file_options(add, SMALL_FILES, TARGET, "1h; of a state table 1m")


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the source's options from the arguments."""
    values = dict(pair for pair in options.option or () if pair is not None)
    for flag, name in (("url", "url"), ("keys", "keys"), ("starting_offsets", "startingOffsets"), ("folder", "folder")):
        if getattr(options, flag) is not None:
            values[name] = getattr(options, flag)
    return values


def argument_errors(options: argparse.Namespace) -> list[str]:
    from rillet.spark.changes.options import parse_changes

    given = source_options(options)
    errors = problems(options.archive, options.state, given)
    try:
        parse_changes({"folder": "in the output", **given})
    except OptionError as error:
        errors.append(str(error).removeprefix("rillet: "))
    return errors if options.url is not None else []


def run(options: argparse.Namespace) -> int:
    """Bring the outputs up to date; print a summary line and return the exit status."""
    given = source_options(options)
    connection = {name: value for name, value in given.items() if name.lower() in cli_arguments.CONNECTION}
    with cli_common.runner_of(options, "changes", connection) as runner:
        stop = cli_common.stop_on_sigterm(options)
        with cli_common.progress_bar(options, "changes", "rows") as bar:
            done = changes(
                runner, archive=options.archive, state=options.state, schema=options.schema, every=options.every,
                stop=stop, buckets=options.buckets, small_files=options.small_files, target_bytes=options.file_size,
                compression=options.compression, keep_replaced=options.keep_replaced, keep=options.keep,
                format=options.format, storage_options=dict(options.storage_option), progress=bar,
                each_round=options.job, **given,
            )  # fmt: skip
    if options.json:
        print_json({**asdict(done), "in": runner.used})
    else:
        print(f"{done.line()}; in {runner.used}")
    return cli_common.FAILED if done.state.refused else cli_common.DONE


__all__ = ["ChangesSummary", "changes", "read_state"]
