"""LATENCY: events that took long, and the times of each command (Redis: latency.c, sparkline.c).

runtime/latency.py records the events, runtime/latency_histogram.py the times of the commands. LATENCY DOCTOR describes
the same events as in Redis, in rillet's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rillet.commands.arguments import text
from rillet.commands.help_texts import declare_help
from rillet.commands.server import command
from rillet.commands.server.info import all_commands, find_command
from rillet.errors import CommandError
from rillet.runtime.latency import Event
from rillet.runtime.registry import Command
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_FLAGS = "admin noscript loading stale"
_COLUMNS = 80
_ROWS = 4
_HEIGHTS = "_o#"  # a sample's character in the row that contains its top, from low to high


@command("latency|latest", arity=2, flags=_FLAGS, since="2.8.13", complexity="O(1)")
def latency_latest(session: Session, argv: list[bytes]) -> None:
    """Return the latest sample of each event, and the longest of all its samples."""
    out, events = session.out, session.engine.latency.events
    valkey = session.engine.settings.compat.valkey
    out.array(len(events))
    for name, event in events.items():
        time, milliseconds = event.samples[-1]
        out.array(6 if valkey else 4)
        out.bulk(name)
        out.integer(time)
        out.integer(milliseconds)
        out.integer(event.longest)
        if valkey:
            out.integer(event.total)
            out.integer(event.count)


@command("latency|history", arity=3, flags=_FLAGS, since="2.8.13", syntax="event", complexity="O(1)")
def latency_history(session: Session, argv: list[bytes]) -> None:
    """Return the samples of an event: times in seconds, and milliseconds."""
    event: Event | None = session.engine.latency.events.get(argv[2])
    samples = () if event is None else tuple(event.samples)
    session.out.array(len(samples))
    for time, milliseconds in samples:
        session.out.array(2)
        session.out.integer(time)
        session.out.integer(milliseconds)


@command("latency|reset", arity=-2, flags=_FLAGS, since="2.8.13", syntax="[event [event ...]]", complexity="O(1)")
def latency_reset(session: Session, argv: list[bytes]) -> None:
    """Forget the samples of events, or of all events; return the number of events."""
    latency = session.engine.latency
    if len(argv) == 2:
        session.out.integer(latency.reset([]))
    else:
        session.out.integer(sum(latency.reset([name]) for name in argv[2:]))


@command("latency|histogram", arity=-2, flags=_FLAGS, since="7.0.0", syntax="[command [command ...]]",
         complexity="O(N) for N commands")
def latency_histogram(session: Session, argv: list[bytes]) -> None:
    """Return how many calls of commands took up to 1, 2, 4 ... microseconds."""
    out, engine = session.out, session.engine
    found = []
    for entry in _named(engine, argv[2:]) if len(argv) > 2 else all_commands(engine):
        histogram = engine.stats.of_command(entry).histogram
        if histogram is not None:
            found.append((entry.fullname.encode(), histogram))
    out.map(len(found))
    for name, histogram in found:
        out.bulk(name)
        out.map(2)
        out.bulk(b"calls")
        out.integer(histogram.total)
        out.bulk(b"histogram_usec")
        lines = histogram.doubling()
        out.map(len(lines))
        for microseconds, calls in lines:
            out.integer(microseconds)
            out.integer(calls)


def _named(engine: CommandEngine, names: Iterable[bytes]) -> Iterator[Command]:
    """Yield the named commands with their subcommands; unknown names are left out."""
    for name in names:
        entry = find_command(engine, name)
        if entry is not None:
            yield entry
            yield from (entry.subcommands or {}).values()


# -- pictures and advice ----------------------------------------------------------------------------


@command("latency|graph", arity=3, flags=_FLAGS, since="2.8.13", syntax="event", complexity="O(1)")
def latency_graph(session: Session, argv: list[bytes]) -> None:
    """Draw the samples of an event."""
    event: Event | None = session.engine.latency.events.get(argv[2])
    if event is None:
        raise CommandError(f"No samples available for event '{text(argv[2])}'")
    times = [milliseconds for _, milliseconds in event.samples]
    now = session.engine.clock.now_us() // 1_000_000
    labels = [_ago(now - time) for time, _ in event.samples]
    head = f"{text(argv[2])} - high {max(times)} ms, low {min(times)} ms (all time high {event.longest} ms)\n"
    session.out.verbatim((head + "-" * _COLUMNS + "\n" + _sparkline(times, labels)).encode())


def _ago(seconds: int) -> str:
    """Return a time that has passed, in the largest unit."""
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h" if seconds < 24 * 3600 else f"{seconds // (24 * 3600)}d"


def _sparkline(values: list[int], labels: list[str]) -> str:
    """Draw values as columns of four rows, with vertical labels below them; 80 columns side by side."""
    low, span = min(values), max(values) - min(values) or 1
    steps = _ROWS * len(_HEIGHTS)
    heights = [min((value - low) * steps // span, steps - 1) for value in values]
    parts = []
    for at in range(0, len(values), _COLUMNS):
        part, names = heights[at : at + _COLUMNS], labels[at : at + _COLUMNS]
        lines = ["".join(_mark(height - row * len(_HEIGHTS)) for height in part) for row in reversed(range(_ROWS))]
        lines.append(" " * len(part))
        for letter in range(max(map(len, names))):
            lines.append("".join(name[letter : letter + 1] or " " for name in names))
        parts.append("".join(line + "\n" for line in lines))
    return "\n".join(parts)


def _mark(step: int) -> str:
    """Return the character of a column in a row, given the steps by which the column reaches into the row."""
    if step < 0:
        return " "
    return _HEIGHTS[step] if step < len(_HEIGHTS) else "|"


@command("latency|doctor", arity=2, flags=_FLAGS, since="2.8.13", complexity="O(1)")
def latency_doctor(session: Session, argv: list[bytes]) -> None:
    """Describe the events that took long, with remedies."""
    session.out.verbatim(_report(session.engine).encode())


def _report(engine: CommandEngine) -> str:
    events, settings = engine.latency.events, engine.settings
    if not events and not settings.latency_monitor_threshold:
        return ("The latency monitor is off. `CONFIG SET latency-monitor-threshold <milliseconds>` records the events "
                "that take at least so long.\n")  # fmt: skip
    if not events:
        return f"No event took {settings.latency_monitor_threshold} ms or longer.\n"
    now = engine.clock.now_us() // 1_000_000
    lines = ["These events took long:", ""]
    for number, (name, event) in enumerate(events.items(), 1):
        lines.append(f"{number}. {name.decode()}: {_summary(event, now)}")
    advice = list(dict.fromkeys(line for name in events for line in _advice(name.decode(), engine)))
    if advice:
        lines += ["", "What may help:", "", *(f"- {line}" for line in advice)]
    return "\n".join(lines) + "\n"


def _summary(event: Event, now: int) -> str:
    times = [milliseconds for _, milliseconds in event.samples]
    average = sum(times) // len(times)
    deviation = sum(abs(average - one) for one in times) // len(times)
    period = max(now - event.samples[0][0], 1) / len(times)
    return (f"{len(times)} times (average {average} ms, mean deviation {deviation} ms, every {period:.2f} s). "
            f"The longest took {event.longest} ms.")  # fmt: skip


def _advice(name: str, engine: CommandEngine) -> Iterator[str]:
    """Yield what may help against an event."""
    settings = engine.settings
    threshold_us: int = settings.latency_monitor_threshold * 1000
    if name == "command":
        if settings.slowlog_log_slower_than < 0 or not settings.slowlog_max_len:
            yield f"Turn the slow log on: CONFIG SET slowlog-log-slower-than {threshold_us}"
        elif settings.slowlog_log_slower_than > threshold_us:
            yield f"Let the slow log show these commands too: CONFIG SET slowlog-log-slower-than {threshold_us}"
        yield "SLOWLOG GET shows the commands. Commands with O(N) on large values take long: see their documentation."
    if name in ("command", "expire-cycle", "eviction-del"):
        yield "Deletions of large values take long: use UNLINK, and the settings lazyfree-lazy-*."
    if name == "fast-command":
        yield "The process did not run all the time: compare the load with the number of processors."
    if name.startswith("aof-") or name == "rdb-unlink-temp-file":
        yield "The disk is slow: use a local SSD, and let other programs write less."
    if name == "aof-write-active-child":
        yield "Syncs wait for the rewrite of the log: CONFIG SET no-appendfsync-on-rewrite yes"
    if name == "aof-fsync-always":
        yield "`appendfsync always` syncs before each reply. `everysec` loses at most a second if the machine stops."
    if name == "fork":
        yield "The fork copies the process's page table: use smaller stores, or save less often."
    if name == "expire-cycle":
        yield "Many keys expire at the same time: vary their times, or raise `hz` so that each cycle is shorter."
    if name == "eviction-cycle":
        yield "Many keys are evicted at once: lower maxmemory-eviction-tenacity, or raise maxmemory in steps."


declare_help("latency", "server", "2.8.13")
