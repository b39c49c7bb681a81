"""`make demo`: a year of flights goes through a stream, a consumer group and Spark to tables and a chart."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import rillet
from examples.flights import data, workers
from rillet import Store
from rillet.errors import RilletError

CONSOLE = Console()
MARKER = ".rillet-demo"
BATCH = 2_000


@contextmanager
def step(title: str, times: dict[str, float]) -> Iterator[None]:
    """Print a step's title, and store its duration."""
    CONSOLE.rule(f"[bold]{title}", align="left")
    started = time.perf_counter()
    yield
    times[title] = time.perf_counter() - started


def prepare(out: Path) -> None:
    """Create an empty output folder; replace that of an earlier run, and reject any other."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARKER).exists():
            raise SystemExit(f"{out} holds other files: name another folder with --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()


def _progress() -> Progress:
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=CONSOLE,
    )


def replay(store: Store, rows: list[data.Flight]) -> None:
    """Add every flight to the stream, and show progress and entries per second."""
    stream = store.stream(workers.STREAM)
    with _progress() as progress:
        task = progress.add_task("adding", total=len(rows), rate="")
        started = time.perf_counter()
        for at in range(0, len(rows), BATCH):
            part = rows[at : at + BATCH]
            stream.add_many(data.entries(part), batch=BATCH)
            rate = (at + len(part)) / (time.perf_counter() - started)
            progress.update(task, completed=at + len(part), rate=f"{rate:,.0f} entries/s")
    CONSOLE.print(f"  {len(stream):,} entries from {stream.first_id} to {stream.last_id}")


def consume(store: Store, total: int, count: int) -> None:
    """Run the consumer group, kill one worker, and print the counters."""
    with _progress() as progress:
        task = progress.add_task("handling", total=total, rate="")
        started = time.perf_counter()

        def show(done: int) -> None:
            progress.update(task, completed=done, rate=f"{done / (time.perf_counter() - started):,.0f} entries/s")

        outcome = workers.share_out(store, count, total // 2, show)
    victim = f"worker-{workers.VICTIM + 1}"
    for name, handled in outcome.handled.items():
        CONSOLE.print(
            f"  {name} handled {handled:,}" + (" and was killed half-way" if outcome.killed and name == victim else "")
        )
    CONSOLE.print(
        f"  claimed from {victim}: {outcome.claimed:,}   handled in all: {sum(outcome.handled.values()):,}   "
        f"twice: {outcome.twice}   still pending: {outcome.pending}   lag: {outcome.lag}"
    )
    if sum(outcome.handled.values()) != total or outcome.twice or outcome.pending or outcome.lag:
        raise SystemExit("the group lost or repeated an entry")
    CONSOLE.print("  [green]nothing lost, nothing handled twice")


def analyse(store: Store, out: Path) -> None:
    """Run Spark: hourly windows from the followed stream, rankings from a batch read, and the chart."""
    from examples.flights import chart, pipeline

    assert store.path is not None
    with Progress(
        SpinnerColumn(), TextColumn("  {task.description}"), TimeElapsedColumn(), console=CONSOLE
    ) as progress:
        task = progress.add_task("starting Spark")
        spark = pipeline.session()
        try:
            streaming = "streaming: delays by airport and hour, with the weather"
            progress.update(task, description=streaming)
            windows = pipeline.hourly_delays(
                spark, store.path, out, lambda n: progress.update(task, description=f"{streaming}: {n:,} flights")
            )
            progress.update(task, description="batch: worst routes, carriers ranked")
            routes, carriers = pipeline.rankings(spark, store.path, out)
            hours = pipeline.by_hour_of_day(spark, out)
        finally:
            for query in spark.streams.active:  # after Ctrl-C; a running query would print stack traces
                query.stop()
            spark.stop()
        progress.update(task, description="chart")
        chart.draw(hours, out / "delays.png")
        progress.update(task, description="done")
    back = len(store.stream("delays"))
    CONSOLE.print(f"  {windows:,} hourly windows in Parquet, {back:,} entries in the stream `delays`")
    if windows != back:
        raise SystemExit("Parquet and the stream `delays` have different numbers of windows")
    airports, airlines = data.airport_names(), data.airline_names()
    CONSOLE.print(
        _table(
            "Worst routes by mean arrival delay (at least 300 flights)",
            ("from", "to", "flights", "minutes"),
            [
                (row.origin, airports.get(row.dest, row.dest), f"{row.flights:,}", f"{row.mean_delay:.1f}")
                for row in routes
            ],
        )
    )
    CONSOLE.print(
        _table(
            "Carriers by mean departure delay",
            ("carrier", "flights", "minutes", "late > 15 min", "cancelled"),
            [
                (
                    airlines.get(row.carrier, row.carrier),
                    f"{row.flights:,}",
                    f"{row.mean_delay:.1f}",
                    f"{row.late_percent:.1f} %",
                    f"{row.cancelled_percent:.1f} %",
                )
                for row in carriers
            ],
        )
    )


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, name in enumerate(head):
        text = number == 0 or (number == 1 and head[1] == "to")
        table.add_column(name, justify="left" if text else "right")
    for row in rows:
        table.add_row(*row)
    return table


def costs(store: Store, out: Path) -> None:
    """Print the memory and disk space per entry of the stream."""
    stream = store.stream(workers.STREAM)
    memory = int(store.execute("MEMORY", "USAGE", workers.STREAM, "SAMPLES", "0"))
    disk = sum(file.stat().st_size for file in (out / "flights.rillet").rglob("*") if file.is_file())
    count = len(stream)
    CONSOLE.print(
        f"  memory: {memory / count:.1f} bytes per entry ({memory / 2**20:.1f} MiB)   "
        f"disk: {disk / count:.1f} bytes per entry ({disk / 2**20:.1f} MiB, the log of all steps)"
    )


def run(out: Path, limit: int | None, count: int) -> None:
    """Run every step and print its duration."""
    from rillet.spark import require_java

    require_java()  # fail now, not after minutes of work
    times: dict[str, float] = {}
    prepare(out)
    started = time.perf_counter()
    with rillet.open(out / "flights.rillet") as store:
        with step("1. A year of departures into a durable stream", times):
            rows = data.flights(limit)
            replay(store, rows)
        with step(f"2. A consumer group of {count} processes works through it", times):
            consume(store, len(rows), count)
        with step("3. Spark reads the stream", times):
            analyse(store, out)
        CONSOLE.rule("[bold]4. Cost", align="left")
        costs(store, out)
    for title, seconds in times.items():
        CONSOLE.print(f"  {seconds:6.1f} s  {title}")
    CONSOLE.print(
        f"  {time.perf_counter() - started:6.1f} s  in all ({'compiled' if rillet.compiled() else 'interpreted'} build)"
    )
    CONSOLE.print(f"\nThe results are in [bold]{out}[/]:")
    CONSOLE.print("  delays.png; delays_by_hour/, worst_routes/, carriers/ (Parquet); flights.rillet/ (the store)")


def main() -> int:
    """Parse the options and run; remove incomplete results on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="folder for the results (default: %(default)s)"
    )
    parser.add_argument("--limit", type=int, help="use only the first LIMIT flights of the year")
    parser.add_argument(
        "--workers", type=int, default=3, help="number of consumers in the group (default: %(default)s)"
    )
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    try:
        run(out, arguments.limit, max(2, arguments.workers))
    except KeyboardInterrupt:
        shutil.rmtree(out, ignore_errors=True)
        CONSOLE.print("\n[yellow]interrupted; the incomplete results were removed")
        return 130
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
