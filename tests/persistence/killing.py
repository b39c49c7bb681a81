"""Processes killed under load, again and again, and what the next one finds: a server's, and a store's in a process.

    python -m tests.persistence.killing --rounds 1000 --seed 1 --jobs 2

A chain is a directory and a way to keep it (`Plan`: a server or the embedded library, appendfsync, how a base is
written). In each of its rounds a process opens the directory, clients write to it through connections of their own, and
it is killed (SIGKILL) at a random moment: in the middle of the load, after BGREWRITEAOF or BGSAVE was asked for, while
it starts. The logs are rewritten all the time (auto-aof-rewrite-percentage 10, min-size 16kb), so many kills fall into
a rewrite; what the killed process had started itself lives on, as it would. For the library the clients are threads of
two processes, the store's owner and one that is attached to it; the owner dies first, and the other may take its place
before it is killed, too.

A client has keys of its own and knows what they must be (`Model`): stream, group and pending entries, string, counter,
list, hash. It notes what it sent and what was acknowledged. After a kill the directory is opened again, and for each
client

    acknowledged  <=  what is there  <=  sent            in the order in which it was sent, a transaction whole or not

whatever appendfsync is: what a process has written is the kernel's, and it is written before the reply leaves. Entries
whose IDs nobody was told are known by the number in their fields.

Before that, on a copy, `check` finds nothing but a torn end, and now and then the real server that the directory is
kept for (`compat`) loads the copy and comes to the same DEBUG DIGEST.

The moments are those of a clock, so a seed repeats what is sent and done, and not when the kill hits. A failure keeps
the directory as the killed process left it, and says where.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pickle
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import rillet
from rillet.errors import StoreError
from rillet.protocol.parser import pack_command
from tests.persistence.ledger import Client, Failure, require

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 4
ROUNDS_OF_A_CHAIN = 10
TIMEOUT = 60.0
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_LOAD = 0.15
_FRAME = struct.Struct("<I")


class Gone(Exception):
    """The other side was killed."""


# -- what is killed --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A chain: its seed, how many rounds it has, what is killed in it, and the settings."""

    seed: int
    number: int
    rounds: int
    library: bool

    def source(self) -> random.Random:
        """Return the chances of this chain."""
        return random.Random(f"{self.seed}:{self.number}")

    def settings(self) -> dict[str, str]:
        """Return what the directory is kept by."""
        source = self.source()
        found = {
            "appendfsync": source.choice(("always", "everysec", "no")),
            "compat": source.choice(("7.0", "newest")),
            "aof-use-rdb-preamble": source.choice(("yes", "no")),
            "auto-aof-rewrite-percentage": "10",
            "auto-aof-rewrite-min-size": "16kb",
            "stream-node-max-entries": "10",
            "aof-timestamp-enabled": source.choice(("yes", "no")),
            "no-appendfsync-on-rewrite": source.choice(("yes", "no")),
            "enable-debug-command": "yes",
        }
        if not self.library:
            found |= {"appendonly": "yes", "save": source.choice(("", "1 100"))}
        return found

    def __str__(self) -> str:
        return f"{'library' if self.library else 'server'} {self.settings()}"


def _environment() -> dict[str, str]:
    folder = str(Path(rillet.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}


class Channel:
    """A way to send commands and get replies: to a server in RESP, to a process that holds a store in frames."""

    def __init__(self, connection: socket.socket, library: bool) -> None:
        self.socket = connection
        self.library = library
        self._frames = b""
        self._replies: list[Any] = []
        if not library:
            import hiredis

            self._reader: Any = hiredis.Reader()
        connection.settimeout(TIMEOUT)

    def send(self, commands: list[list[bytes]]) -> None:
        """Send commands; Gone where nobody is there."""
        if self.library:
            data = pickle.dumps(commands)
            data = _FRAME.pack(len(data)) + data
        else:
            data = b"".join(map(pack_command, commands))
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Gone from error

    def reply(self) -> Any:
        """Return the next reply, an exception for an error; Gone where none will come."""
        while not self._replies:
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise Failure(f"no reply within {TIMEOUT:.0f} seconds") from None
            except OSError as error:
                raise Gone from error
            if not data:
                raise Gone
            self._take(data)
        return self._replies.pop(0)

    def _take(self, data: bytes) -> None:
        if self.library:
            self._frames += data
            while (frame := _frame(self._frames)) is not None:
                self._frames = self._frames[_FRAME.size + len(frame) :]
                self._replies += pickle.loads(frame)
            return
        self._reader.feed(data)
        while (one := self._reader.gets()) is not False:
            self._replies.append(one)

    def ask(self, commands: list[list[bytes]]) -> list[Any]:
        """Send commands and return their replies."""
        self.send(commands)
        return [self.reply() for _ in commands]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _frame(data: bytes) -> bytes | None:
    if len(data) < _FRAME.size:
        return None
    size = _FRAME.unpack_from(data)[0]
    return data[_FRAME.size : _FRAME.size + size] if len(data) >= _FRAME.size + size else None


class Subject:
    """The processes that hold a directory open, and a channel to them for each client."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.processes: list[subprocess.Popen[str]] = []
        self.channels: list[Channel] = []
        self.said: list[str] = []
        self._readers: list[threading.Thread] = []
        self._socket = ""

    def begin(self) -> None:
        """Start the first process, and do not wait for it."""
        if self.plan.library:
            self._hold(CLIENTS // 2)
            return
        self._socket = str(Path(tempfile.gettempdir()) / f"k{os.getpid()}-{time.monotonic_ns() % 10**9}.sock")
        words = [word for name, value in self.plan.settings().items() for word in (f"--{name}", value)]
        self._start(["-m", "rillet", "serve", "--port", "0", "--unixsocket", self._socket, "--dir", str(self.folder),
                     *words], ())  # fmt: skip

    def open(self) -> None:
        """Wait until the first process is ready, start what else there is, and connect."""
        self._ready(self.processes[0], "listening" if not self.plan.library else "ready")
        if self.plan.library:
            self._hold(CLIENTS - CLIENTS // 2)
            self._ready(self.processes[1], "ready")
            return
        for _ in range(CLIENTS):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._socket)
            self.channels.append(Channel(connection, False))

    def _start(self, arguments: list[str], inherited: tuple[int, ...]) -> None:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=_environment(), cwd=ROOT, text=True, pass_fds=inherited,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)

    def _hold(self, clients: int) -> None:
        """Start a process that opens the store and serves some clients."""
        pairs = [socket.socketpair() for _ in range(clients)]
        numbers = tuple(theirs.fileno() for _, theirs in pairs)
        self._start(["-m", "tests.persistence.killing", "--hold", str(self.folder), repr(self.plan.settings()),
                     *map(str, numbers)], numbers)  # fmt: skip
        for ours, theirs in pairs:
            theirs.close()
            self.channels.append(Channel(ours, True))

    def _ready(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.start()
        try:
            while True:
                line = process.stdout.readline()
                self.said.append(line)
                if word in line:
                    break
                if not line:
                    raise Failure(f"the directory does not open: {''.join(self.said)}")
        finally:
            alarm.cancel()
        reader = threading.Thread(target=lambda: self.said.extend(process.stdout or ()))
        reader.start()
        self._readers.append(reader)

    def kill(self, source: random.Random) -> None:
        """Kill what there is, the owner first; the others get a moment for what they make of it."""
        for process in self.processes:
            process.kill()
            if process is not self.processes[-1]:
                time.sleep(source.choice((0, 0, source.uniform(0, 0.1))))
        self._gone()

    def end(self) -> None:
        """End it as an operator does; the clients go on meanwhile."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self) -> None:
        for process in self.processes:
            process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join()

    def close(self) -> None:
        """Let go of all that is left of it."""
        for process in self.processes:
            process.kill()
            process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join()
        for process in self.processes:
            if process.stdout is not None:
                process.stdout.close()
        for channel in self.channels:
            channel.close()
        if self._socket:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket)


def _hold(folder: str, settings: dict[str, str], numbers: list[int]) -> None:
    """Open a store and carry out what comes in, a thread for each channel; until killed, or nobody is left."""
    options: Any = {name.replace("-", "_"): value for name, value in settings.items()}
    store = rillet.open(folder, **options)
    threads = [threading.Thread(target=_serve, args=(store, socket.socket(fileno=number))) for number in numbers]
    for thread in threads:
        thread.daemon = True
        thread.start()
    print("ready", "owner" if store.owner else "attached", flush=True)
    for thread in threads:
        thread.join()


def _serve(store: rillet.Store, connection: socket.socket) -> None:
    data = b""
    with connection:  # so that who waits for a reply sees the end of this thread
        while piece := connection.recv(1 << 16):
            data += piece
            while (frame := _frame(data)) is not None:
                data = data[_FRAME.size + len(frame) :]
                try:
                    for part in _parts(pickle.loads(frame)):
                        _answer(connection, store.execute_many(part) if len(part) > 1 else [store.execute(*part[0])])
                except StoreError:  # the owner was killed, and whether this was carried out nobody knows
                    return


def _parts(commands: list[list[bytes]]) -> Iterator[list[list[bytes]]]:
    """Yield the commands one by one, or all of them together: a call for each, or one."""
    if len(commands) % 2:
        yield commands
        return
    together: list[list[bytes]] = []
    for argv in commands:
        together.append(argv)
        if together[0] != [b"MULTI"] or argv == [b"EXEC"]:
            yield together
            together = []


def _answer(connection: socket.socket, replies: list[Any]) -> None:
    data = pickle.dumps(replies)
    connection.sendall(_FRAME.pack(len(data)) + data)


# -- what is there ---------------------------------------------------------------------------------------


def read(channel: Channel, name: bytes) -> tuple[Any, ...]:
    """Return the state of a client's keys, as Model.state tells what it must be."""
    exists, text, expires, count, items, table = channel.ask([
        [b"EXISTS", name + b"s"], [b"GET", name + b"t"], [b"PEXPIRETIME", name + b"t"], [b"GET", name + b"n"],
        [b"LRANGE", name + b"l", b"0", b"-1"], [b"HGETALL", name + b"h"],
    ])  # fmt: skip
    stream = None
    if exists:
        facts = _pairs(channel.ask([[b"XINFO", b"STREAM", name + b"s", b"FULL", b"COUNT", b"0"]])[0])
        group = _pairs(facts[b"groups"][0])
        stream = (
            [tuple(entry) for entry in facts[b"entries"]], facts[b"entries-added"], facts[b"last-generated-id"],
            group[b"last-delivered-id"], [(one[0], one[1], one[3]) for one in group[b"pending"]],
            sorted(_pairs(one)[b"name"] for one in group[b"consumers"]),
        )  # fmt: skip
    return stream, text, expires, count, items, _pairs(table)


def _pairs(flat: Any) -> dict[bytes, Any]:
    return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


# -- a chain of rounds -----------------------------------------------------------------------------------


@dataclass
class Figures:
    """What was done and found."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Add another chain's."""
        self.counts.update(other.counts)

    def __str__(self) -> str:
        count = self.counts
        return (
            f"{count['rounds']} rounds ({count['server']} of a server, {count['library']} of the library): "
            f"{count['acknowledged']} commands acknowledged, none lost; {count['taken']} more were there of "
            f"{count['flying']} that were on their way; {count['starts']} kills while it started, "
            f"{count['rewriting']} with a rewrite on its way, {count['torn']} torn ends ({count['dropped']} bytes), "
            f"{count['ended']} ended by SIGTERM; {count['checked']} directories checked, {count['judged']} loaded by "
            "real servers with the same digest"
        )


class Chain:
    """The rounds of one directory."""

    def __init__(self, plan: Plan, base: Path) -> None:
        self.plan = plan
        self.source = plan.source()
        self.folder = base / f"chain{plan.number}"
        self.kept = base / f"kept{plan.number}"
        self.clients = [Client(n, random.Random(f"{plan.seed}:{plan.number}:{n}")) for n in range(CLIENTS)]
        self.figures = Figures()
        self.problem: BaseException | None = None
        self._start_takes = 0.3
        self._digest = b""

    def run(self) -> Figures:
        """Run the rounds; Failure tells what went wrong, and where the directory is."""
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
        """Hold what is there against what was acknowledged and what was sent."""
        count = self.figures.counts
        for client in self.clients:
            count["flying"] += len(client.flying)
            count["taken"] += client.settle(read(subject.channels[0], client.name))
        if count["rounds"] % 4 == 3 and self.kept.exists():
            self._check_kept(subject)

    def _check_kept(self, subject: Subject) -> None:
        """Check the copy of the directory as the killed process left it, and let redis-server load it."""
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
        """Let the clients write, kill in the middle of it, and wait until they know."""
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
        """Return a connection of one who gives orders, to the server or to the store's owner."""
        path = subject._socket or str(self.folder / "socket")
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
        """Copy the directory as it was left."""
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


def _adopt_orphans() -> None:
    """Become the parent of what a killed process had started, so that it can be ended with this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap_orphans() -> None:
    """End what a killed process had started; nothing else is a child of this process by now."""
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
    _adopt_orphans()
    return Chain(plan, base).run()


def plans(rounds: int, seed: int, only: str = "") -> list[Plan]:
    """Return the chains that make up so many rounds, of a server and of the library in turns."""
    found = []
    for number in range((rounds + ROUNDS_OF_A_CHAIN - 1) // ROUNDS_OF_A_CHAIN):
        here = min(ROUNDS_OF_A_CHAIN, rounds - number * ROUNDS_OF_A_CHAIN)
        library = only == "library" or (not only and number % 2 == 1)
        found.append(Plan(seed, number, here, library))
    return found


def main() -> int:
    """Run from the command line."""
    if sys.argv[1:2] == ["--hold"]:
        import ast

        _hold(sys.argv[2], ast.literal_eval(sys.argv[3]), [int(word) for word in sys.argv[4:]])
        return 0
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
    base = Path(tempfile.mkdtemp(prefix="killing-"))
    began = time.monotonic()
    print(f"rillet {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}", flush=True)
    figures, failed = Figures(), 0
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
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
