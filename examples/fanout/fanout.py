"""Fan-out: 500 asyncio readers follow one stream, and each of them sees every entry.

    python examples/fanout/fanout.py                          readers and writer in one process, in memory
    python examples/fanout/fanout.py --processes 2            the readers in two other processes, through a directory
    python examples/fanout/fanout.py --readers 5000 --entries 20

             ┌──► reader 1      each reader has its own position in the stream,
    stream ──┼──► reader 2      so a reader that comes late begins with the first entry,
             ┆      ┆           and a slow reader delays nobody and misses nothing
             └──► reader 500

A consumer group is the opposite: it gives each entry to one of its consumers. Channels (publish, subscribe) also reach
everybody, but only those who listen at that moment.

In one process a waiting reader is a future: no thread, no socket. In another process each waiting reader has a
connection to the owner of the directory, because a command that waits occupies its connection; `ulimit -n` limits their
number on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import rillet
from rillet import Stream
from rillet.aio import AsyncStream

END = "end"


async def publish(stream: AsyncStream, count: int, pause: float) -> None:
    """Add entries at intervals, with the time at which they are added, then one that ends the readers."""
    for number in range(1, count + 1):
        await stream.add({"number": number, "at": time.time()})
        await asyncio.sleep(pause)
    await stream.add({"number": END, "at": time.time()})


async def read(stream: AsyncStream, late: float) -> list[float]:
    """Follow the stream from its first entry to its end; return the delays of the entries that were new, in seconds."""
    await asyncio.sleep(late)
    began = time.time()
    delays = []
    expected = 1
    async for entry in stream.follow("0", block=60):
        if entry["number"] == END:
            break
        assert int(entry["number"]) == expected, "an entry is missing"
        expected += 1
        if float(entry["at"]) >= began:
            delays.append(time.time() - float(entry["at"]))
    return delays


async def read_many(stream: AsyncStream, readers: int, late: float) -> list[float]:
    """Run readers, half of which come late; return all delays."""
    tasks = [asyncio.create_task(read(stream, late if number % 2 else 0.0)) for number in range(readers)]
    return [delay for delays in await asyncio.gather(*tasks) for delay in delays]


def read_in_process(stream: Stream, readers: int, late: float) -> list[float]:
    """Run readers in this process. The stream was sent to it: its store is attached to the owner's directory."""
    return asyncio.run(read_many(stream.store.aio().stream(stream.name), readers, late))


async def in_one_process(options: argparse.Namespace) -> list[float]:
    """Run writer and readers on one event loop."""
    async with rillet.open().aio() as store:
        stream = store.stream("prices")
        readers = asyncio.create_task(read_many(stream, options.readers, options.late))
        await publish(stream, options.entries, options.pause)
        return await readers


async def in_processes(options: argparse.Namespace) -> list[float]:
    """Run the writer here, and the readers in other processes."""
    share = options.readers // options.processes
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder, rillet.open(f"{folder}/store") as store:
        stream = store.stream("prices")
        with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
            runs = [
                loop.run_in_executor(pool, read_in_process, stream, share, options.late)
                for _ in range(options.processes)
            ]
            await publish(store.aio().stream("prices"), options.entries, options.pause)
            return [delay for delays in await asyncio.gather(*runs) for delay in delays]


def main() -> None:
    """Run the fan-out, and print how long the entries were under way."""
    parser = argparse.ArgumentParser(description="One stream, many asyncio readers, each of which sees every entry.")
    parser.add_argument("--readers", type=int, default=500)
    parser.add_argument("--entries", type=int, default=50)
    parser.add_argument("--processes", type=int, default=0, help="processes for the readers; 0: this process")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two entries")
    parser.add_argument("--late", type=float, default=1.0, help="seconds after which half of the readers begin")
    options = parser.parse_args()
    began = time.perf_counter()
    delays = sorted(asyncio.run(in_processes(options) if options.processes else in_one_process(options)))
    took = time.perf_counter() - began
    print(f"{options.readers} readers saw all of {options.entries} entries in {took:.1f} s")
    if delays:
        half, most = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
        print(f"new entries arrived after {1000 * half:.1f} ms (median), {1000 * most:.1f} ms (99%)")


if __name__ == "__main__":
    main()
