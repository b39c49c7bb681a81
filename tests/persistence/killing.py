"""Kills processes under load repeatedly and checks the data: a server, or a store inside a process.

    python -m tests.persistence.killing --rounds 1000 --seed 1 --jobs 2

A chain is a directory and its configuration (`Plan`: server or embedded library, appendfsync, format of the base). In
each round a process opens the directory, clients write to it through their own connections, and it is killed (SIGKILL)
at a random moment: under load, after BGREWRITEAOF or BGSAVE, or during its start. The logs are rewritten continuously
(auto-aof-rewrite-percentage 10, min-size 16kb), so many kills interrupt a rewrite; child processes of the killed
process continue to run. For the library, the clients are threads of two processes: the store's owner and an attached
process. The owner is killed first, and the other process may become the owner before it is killed too.

Each client has its own keys and a model of their values (`Model`): stream, group and pending entries, string, counter,
list, hash. It records what it sent and what was acknowledged. After a kill the directory is opened again, and for each
client

    acknowledged  <=  found data  <=  sent               in the order of sending; transactions are complete or absent

This holds for every appendfsync, because a process writes to the kernel before it replies, and the kernel keeps written
data. Entries whose IDs were not reported are identified by the number in their fields.

Before that, `check` on a copy may find nothing but a torn end. In some rounds the real server for this configuration
(`compat`) loads the copy and must return the same DEBUG DIGEST.

A seed repeats the commands, but not the moments of the kills, which depend on the clock. A failure keeps the directory
in the state after the kill, and prints its path.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import rillet
from tests.persistence.ledger import Client, require
from tests.persistence.victims import CLIENTS, Channel, Gone, Plan, Subject, read

ROUNDS_OF_A_CHAIN = 10
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_LOAD = 0.15


# -- a chain of rounds -----------------------------------------------------------------------------------


@dataclass
class Figures:
    """Counts of executed work and of findings."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Add the figures of another chain."""
        self.counts.update(other.counts)

    def __str__(self) -> str:
        count = self.counts
        return (
            f"{count['rounds']} rounds ({count['server']} of a server, {count['library']} of the library): "
            f"{count['acknowledged']} commands acknowledged, none lost; {count['taken']} more were there of "
            f"{count['flying']} that were on their way; {count['starts']} kills while it started, "
            f"{count['rewriting']} with a rewrite on its way, {count['torn']} torn ends, "
            f"{count['ended']} ended by SIGTERM; {count['checked']} directories checked, {count['judged']} loaded by "
            "real servers with the same digest"
        )


class Chain:
    """All rounds of one directory."""

    def __init__(self, plan: Plan, base: Path) -> None:
        self.plan = plan
        self.source = plan.source()
        self.folder = base / f"chain{plan.number}"
        self.kept = base / f"kept{plan.number}"
        self.clients = [Client(n, random.Random(f"{plan.seed}:{plan.number}:{n}")) for n in range(CLIENTS)]
        self.figures = Figures()
        self.problem: BaseException | None = None
        self._start_takes = 0.3

    def run(self) -> Figures:
        """Run the rounds; Failure names the defect and the directory."""
        self.folder.mkdir(parents=True)
        try:
            for _ in range(self.plan.rounds):
                self._round()
            self._verify_at_end()
        except BaseException as error:
            error.add_note(f"{self.plan}: left by the killed process: {self.kept}, after that: {self.folder}")
            raise
        finally:
            _reap_orphans()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.kept, ignore_errors=True)
        return self.figures

    def _round(self) -> None:
        count = self.figures.counts
        if self.source.random() < 0.25:
            self._kill_while_it_starts()
        subject = Subject(self.folder, self.plan)
        try:
            began = time.monotonic()
            subject.begin()
            subject.open()
            self._start_takes = time.monotonic() - began
            self._compare(subject)
            self._load(subject)
        finally:
            subject.close()
        if self.problem is not None:
            raise self.problem
        said = "".join(subject.said)
        require("Traceback" not in said, said)
        self._keep()
        count["rounds"] += 1
        count["library" if self.plan.library else "server"] += 1

    def _kill_while_it_starts(self) -> None:
        subject = Subject(self.folder, self.plan)
        subject.begin()
        time.sleep(self.source.uniform(0.3, 1.1) * self._start_takes)
        subject.close()
        self.figures.counts["starts"] += 1

    def _compare(self, subject: Subject) -> None:
        """Compare the found data with what was acknowledged and sent."""
        count = self.figures.counts
        for client in self.clients:
            count["flying"] += len(client.flying)
            count["taken"] += client.settle(read(subject.channels[0], client.name))
        if count["rounds"] % 4 == 3 and self.kept.exists():
            self._check_kept(subject)

    def _check_kept(self, subject: Subject) -> None:
        """Check the copy of the killed process's directory, and load it with redis-server."""
        from rillet.persistence.checking import check
        from tests.judge import peer_binary

        count = self.figures.counts
        report = check(self.kept)
        require(all(damage.torn for damage in report.damages), "\n".join(map(str, report.damages)))
        count["checked"] += 1
        if report.damages:
            count["torn"] += 1
        elif (binary := peer_binary(self.plan.settings()["compat"])) is not None:
            digest = subject.channels[0].ask([[b"DEBUG", b"DIGEST"]])[0]
            theirs = _digest_of_redis(self.kept, binary)
            require(digest == theirs, f"DEBUG DIGEST is {digest!r}, redis-server's of the same files {theirs!r}")
            count["judged"] += 1

    def _load(self, subject: Subject) -> None:
        """Let the clients write, kill the process, and wait until the clients have noticed."""
        before = sum(client.acknowledged for client in self.clients)
        threads = [
            threading.Thread(target=self._write, args=(client, channel))
            for client, channel in zip(self.clients, subject.channels, strict=True)
        ]
        for thread in threads:
            thread.start()
        self._strike(subject)
        for thread in threads:
            thread.join()
        self.figures.counts["acknowledged"] += sum(client.acknowledged for client in self.clients) - before

    def _strike(self, subject: Subject) -> None:
        source = self.source
        time.sleep(source.uniform(0, _LONGEST_LOAD))
        way = source.random()
        if way < 0.3:
            command = source.choice(([b"BGREWRITEAOF"], [b"BGSAVE", b"SCHEDULE"]))
            asking = self._operator(subject)
            if asking is not None:
                with contextlib.suppress(Gone):
                    asking.ask([command])
                time.sleep(source.uniform(0, 0.05))
                asking.close()
        logs = self.folder / "appendonlydir"
        self.figures.counts["rewriting"] += any("temp" in name or name.endswith(".part") for name in _names(logs))
        if way > 0.94 and not self.plan.library:
            subject.end()
            self.figures.counts["ended"] += 1
        else:
            subject.kill(source)

    def _operator(self, subject: Subject) -> Channel | None:
        """Return a connection for administrative commands, to the server or to the store's owner."""
        path = subject.socket_path or str(self.folder / "socket")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return None
        return Channel(connection, False)

    def _write(self, client: Client, channel: Channel) -> None:
        try:
            while True:
                batch = client.batch()
                client.flying += batch
                channel.send([argv for sent in batch for argv in sent.commands])
                for sent in batch:
                    client.acknowledge([channel.reply() for _ in sent.commands])
        except Gone:
            return
        except BaseException as error:
            self.problem = self.problem or error

    def _keep(self) -> None:
        """Copy the directory in its present state."""
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir()
        for path in [*self.folder.iterdir(), *(self.folder / "appendonlydir").iterdir()]:
            target = self.kept / path.relative_to(self.folder)
            target.parent.mkdir(exist_ok=True)
            # A child of the killed process may finish its work, and remove its file, at this moment.
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    shutil.copyfile(path, target)

    def _verify_at_end(self) -> None:
        subject = Subject(self.folder, self.plan)
        try:
            subject.begin()
            subject.open()
            self._compare(subject)
        finally:
            subject.close()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _digest_of_redis(folder: Path, binary: str) -> Any:
    """Return DEBUG DIGEST of a real server that loads a copy of the directory."""
    from tests.judge import running_redis

    with tempfile.TemporaryDirectory(prefix="k") as temporary:
        copy = Path(temporary) / "copy"
        shutil.copytree(folder, copy)
        for name in ("lock", "socket", "owner.json", "rillet.json"):
            with contextlib.suppress(FileNotFoundError):
                (copy / name).unlink()
        with running_redis("--dir", str(copy), "--appendonly", "yes", binary=binary) as judge, judge.client() as client:
            return client.execute_command("DEBUG", "DIGEST")


def _end_in_order() -> None:
    """Let SIGTERM raise an exception, so that child processes are ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def _adopt_orphans() -> None:
    """Become the parent of a killed process's children, so that they end with this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap_orphans() -> None:
    """End the children of a killed process; this process has no other children at this point."""
    for number in _children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(number, 0)


def _children() -> list[int]:
    found = []
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found


# -- the command -----------------------------------------------------------------------------------------


def run_chain(plan: Plan, base: Path) -> Figures:
    """Run one chain in this process."""
    _end_in_order()
    _adopt_orphans()
    return Chain(plan, base).run()


def plans(rounds: int, seed: int, only: str = "") -> list[Plan]:
    """Return the chains for this number of rounds, alternating between server and library."""
    found = []
    for number in range((rounds + ROUNDS_OF_A_CHAIN - 1) // ROUNDS_OF_A_CHAIN):
        here = min(ROUNDS_OF_A_CHAIN, rounds - number * ROUNDS_OF_A_CHAIN)
        library = only == "library" or (not only and number % 2 == 1)
        found.append(Plan(seed, number, here, library))
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", choices=("server", "library"), default="")
    parser.add_argument("--chain", type=int, default=-1, help="run this chain of the seed alone")
    options = parser.parse_args()
    chosen = plans(options.rounds, options.seed, options.only)
    if options.chain >= 0:
        chosen = [one for one in chosen if one.number == options.chain]
    _end_in_order()
    base = Path(tempfile.mkdtemp(prefix="killing-"))
    began = time.monotonic()
    print(f"rillet {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}", flush=True)
    figures, failed = Figures(), 0
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        # After an interruption the pool is terminated, not closed; each worker then ends its own processes.
        for plan, result in [(plan, pool.apply_async(run_chain, (plan, base))) for plan in chosen]:
            try:
                figures.add(result.get())
            except Exception as error:
                failed += 1
                notes = "\n".join(getattr(error, "__notes__", ()))
                print(f"FAILED {plan}\n{type(error).__name__}: {error}\n{notes}\nagain: python -m "
                      f"tests.persistence.killing --rounds {options.rounds} --seed {plan.seed} --chain {plan.number}"
                      f"{f' --only {options.only}' if options.only else ''}\n{base}", flush=True)  # fmt: skip
            if plan.number % 10 == 9:
                print(f"{time.monotonic() - began:.0f} s: {figures}", flush=True)
    print(f"{time.monotonic() - began:.0f} s, {failed} chains failed: {figures}")
    if not failed:
        shutil.rmtree(base)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
