"""Plots beside redis-server for docs/images: expiry, stalls, memory of each type.

    python -m benchmarks.curves docs/images                      measure, write curves.json, draw expiry.svg ...
    python -m benchmarks.curves docs/images --draw               draw curves.json again
    python -m benchmarks.curves docs/images --scale 0.1 --only memory

All lines of a plot are from the same run, one server after the other. The points are in curves.json beside the plots.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import expiry
from benchmarks.groups import Wire, pack
from benchmarks.harness import redis_server, report, resident_bytes, rillet_server
from benchmarks.keyspace import set_keys
from benchmarks.pinging import Pinging

Lines = dict[str, dict[str, Any]]
"""Plots by their title; each has lines (points) or bars (numbers) by name."""
_ELEMENTS = 1_000_000
_BATCH = 500
_COLOURS = {"redis-server": "#b71c1c", "rillet": "#3f51b5", "store in memory": "#7cb342",
            "store in a directory": "#f9a825", "redis-server with a log": "#e57373", "idle": "#9e9e9e"}  # fmt: skip


def _each(count: int, make: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield batches of commands."""
    for start in range(0, count, _BATCH):
        yield b"".join(map(make, range(start, min(start + _BATCH, count))))


# Type -> the command that adds element `n`, of about ten bytes.
_TYPES: dict[str, Callable[[int], bytes]] = {
    "SET": lambda n: pack("SET", f"key:{n:010d}", f"value {n % 100}"),
    "hashes of 3 fields": lambda n: pack("HSET", f"key:{n:010d}", "a", n, "b", n, "c", n),
    "hash": lambda n: pack("HSET", "k", f"field:{n:08d}", f"value {n % 100}"),
    "set": lambda n: pack("SADD", "k", f"member:{n:08d}"),
    "sorted set": lambda n: pack("ZADD", "k", n, f"member:{n:08d}"),
    "list": lambda n: pack("RPUSH", "k", f"element:{n:08d}"),
    "stream": lambda n: pack("XADD", "k", f"{n + 1}-0", "name", f"value {n}"),
}


def _servers() -> tuple[tuple[str, Any], ...]:
    return ("redis-server", redis_server()), ("rillet", rillet_server("compiled"))


def memory(scale: float) -> Lines:
    """Return the growth of both processes, in bytes per element, for each type."""
    count = max(20_000, int(_ELEMENTS * scale))
    bars: dict[str, dict[str, float]] = {}
    for kind, make in _TYPES.items():
        for name, server in _servers():
            with server as (port, pid), Wire(port) as wire:
                before = resident_bytes(pid)
                for batch in _each(count, make):
                    wire.wait(wire.send(batch))
                bars.setdefault(name, {})[kind] = (resident_bytes(pid) - before) / count
    return {"bytes per element, a million elements": bars}


def stalls(scale: float) -> Lines:
    """Return the slowest PING of each tenth of a second while keys are set and while a large key is unlinked."""
    plots: Lines = {"slowest PING (ms), keys are set": {}, "slowest PING (ms), UNLINK of a sorted set": {}}
    setting, unlinking = plots.values()
    count = max(100_000, int(3 * _ELEMENTS * scale))
    for name, server in _servers():
        with server as (port, _), Wire(port) as wire:
            with Pinging(port) as idle:
                time.sleep(3)
            setting.setdefault("idle", idle.line)
            with Pinging(port) as busy:
                set_keys(wire, 0, count)
            setting[name] = busy.line
            for batch in _each(max(100_000, int(_ELEMENTS * scale)), _TYPES["sorted set"]):
                wire.wait(wire.send(batch))
            with Pinging(port) as busy:
                time.sleep(1)
                wire.run(("UNLINK", "k"))
                time.sleep(2)
            unlinking[name] = busy.line
    return plots


def expiring(scale: float) -> Lines:
    """Return the expiry curves; print the figures that they lead to."""
    curves = expiry.measure("compiled", scale * _ELEMENTS / expiry.KEYS)
    report(expiry.figures(curves, "compiled"), Path("build") / "expiry.json")
    titles = {"keys left": "keys left that expire at once", "keys": "keys, 5,000 SET PX 2000 a second",
              "bytes": "memory (MiB), the same load"}  # fmt: skip
    divisors = {"bytes": 1 << 20}
    return {
        titles[kind]: {
            name: [(round(x, 3), round(y / divisors.get(kind, 1), 2)) for x, y in line]
            for name, line in lines.items() if kind != "bytes" or not name.startswith("store")
        }
        for kind, lines in curves.items()
    }  # fmt: skip


MEASUREMENTS: dict[str, Callable[[float], Lines]] = {"expiry": expiring, "stalls": stalls, "memory": memory}


def draw(plots: Lines, path: Path, across: str = "seconds") -> None:
    """Draw plots side by side: lines for points, bars for numbers. across: the label of the x axis of lines."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "rillet"
    figure, axes = pyplot.subplots(1, len(plots), figsize=(4.6 * max(len(plots), 2), 3.2), squeeze=False)
    for (title, lines), axis in zip(plots.items(), axes[0], strict=True):
        for number, (name, values) in enumerate(lines.items()):
            colour = _COLOURS.get(name)
            if isinstance(values, dict):
                places = [place + (number - 0.5) * 0.4 for place in range(len(values))]
                axis.bar(places, list(values.values()), 0.38, label=name, color=colour)
                axis.set_xticks(range(len(values)), list(values))
            else:
                axis.plot([x for x, _ in values], [y for _, y in values], label=name, color=colour, linewidth=1.3)
                axis.set_xlabel(across, fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="Plots of expiry, stalls and memory beside redis-server.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--draw", action="store_true", help="do not measure")
    parser.add_argument("--only", choices=sorted(MEASUREMENTS), action="append")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    points = options.folder / "curves.json"
    found: dict[str, Lines] = json.loads(points.read_text()) if points.exists() else {}
    for name, measurement in MEASUREMENTS.items():
        if options.only is not None and name not in options.only:
            continue
        if not options.draw:
            found[name] = measurement(options.scale)
            points.write_text(json.dumps(found, separators=(",", ":")) + "\n")
        draw(found[name], options.folder / f"{name}.svg")


if __name__ == "__main__":
    main()
