"""One round of the matrix: a few servers, random load, events on their links and processes, and equal data at the end.

    A ◄── B ◄── C     chain        A ◄── B, A ◄── C     star

**What is expected of a resynchronisation.** Before a link is opened, nothing is written, and the positions of both
sides are known: the history and offset of the replica, and the histories and the backlog of its master. So it is known
whether the master must continue, and `reconnect` compares this with the master's counters `sync_full` and
`sync_partial_ok`. Links that are cut while commands run must continue, too, if the backlog is larger than all load.

**What is expected at a failover.** A client increments a number and calls WAIT. After the master was killed, each
number that enough replicas have acknowledged must be on the promoted one.

The order of events and commands follows from the seed. The moments at which links and processes end do not.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from tests.differential.hyperloglogs import LOGS
from tests.replication.load import UNLIKE, Load, differences, lasts, streams_unlike
from tests.replication.nodes import Node, until

HANDSHAKE = 170  # bytes of a master's replies before the stream, at most
LARGE, SMALL = 20_000_000, 16_384
_CLEAN = ("-READONLY", "Traceback", "== CRITICAL ==")


class RoundLoad(Load):
    """The load of a round: also values for clients that wait for them."""

    flushes = True

    def transaction(self) -> list[list[bytes]]:
        """Return one command, or several that belong together."""
        if self.random.random() < 0.04:
            number = b"%d" % self.random.randrange(1 << 20)
            return [self.random.choice(([b"RPUSH", b"bl", number], [b"ZADD", b"bz", number, number],
                                        [b"XADD", b"bs", b"*", b"f", number]))]  # fmt: skip
        while True:
            found = super().transaction()
            if found == [[b"FLUSHDB"]]:
                # Redis 8 blocks its link during a FLUSHDB without ASYNC. A link that ends meanwhile begins anew.
                found = [[b"FLUSHDB", b"ASYNC"]]
            if not any(argv and self._unwanted(argv) for argv in found):
                return found

    def _unwanted(self, argv: list[bytes]) -> bool:
        """Return whether a command would take seconds on huge strings, or delete what a failover must not lose.

        A score of -0 becomes 0 in a replica of any server whose snapshot loads as a listpack. A PFADD that fails at an
        element that a corrupt HyperLogLog does not cover keeps the elements before it, and Redis does not replicate
        them: no strings for HyperLogLogs are written by hand. The newest Redis loads no stream whose ENTRIESADDED is
        below what a group has read, which XSETID can write. Since 8.2, MINID with DELREF or ACKED deletes other
        entries on a genuine replica than on its master.
        """
        name = argv[0].upper()
        if name in (b"SET", b"APPEND", b"SETRANGE") and argv[1] in LOGS:
            return True
        if name.startswith(b"Z") and b"-0" in argv:
            return True
        words = [word.upper() for word in argv]
        if name == b"XSETID" and b"ENTRIESADDED" in words:
            return True
        if b"MINID" in words and (b"DELREF" in words or b"ACKED" in words):
            return True
        if name in (b"SETBIT", b"BITFIELD", b"SETRANGE"):
            return any(len(word) > 6 for word in argv[2:])
        return not self.flushes and name in (b"FLUSHALL", b"FLUSHDB", b"SWAPDB")


class Background:
    """A thread that calls a function again and again until the block ends; connections that fail are expected."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._job()
            except redis.RedisError:
                self._over.wait(0.05)
            except BaseException as error:
                self._error = error
                return

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error


class Round:
    """The servers of one round; `play` runs it."""

    def __init__(self, seed: int, kinds: list[str], folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.seed, self.kinds = seed, kinds
        self.counts: Counter[str] = Counter()
        self.events: list[str] = []
        known = [kind for kind in kinds if kind != "rillet"]
        self.compat = min(known, key=("7.0", "8.6", "newest", "valkey").index, default="7.0")
        self.large = chance.random() < 0.6
        self.star = len(kinds) == 3 and chance.random() < 0.4
        compats = [self.compat if kind == "rillet" else kind for kind in kinds]
        self.nodes = [Node("ABC"[at], kind, compats[at], folder / "ABC"[at], self._options())
                      for at, kind in enumerate(kinds)]  # fmt: skip
        self.root = self.nodes[0]
        self.load = RoundLoad(seed, self.compat)
        self.number = 0  # of the last write that WAIT confirmed

    def _options(self) -> list[str]:
        chance = self.chance
        loads = ["disabled", "swapdb", "on-empty-db"]
        options = ["--repl-backlog-size", str(LARGE if self.large else SMALL),
                   "--repl-diskless-sync", chance.choice(("yes", "no")), "--repl-diskless-load", chance.choice(loads),
                   "--appendonly", chance.choice(("yes", "no", "no"))]  # fmt: skip
        options += ["--save", *chance.choice((["3600 1"], [""], [""]))]
        return options

    # -- the shape -------------------------------------------------------------------------------------------

    def replicas(self) -> list[Node]:
        """Return the replicas, each after its master."""
        found, rest = [self.root], [node for node in self.nodes if node is not self.root]
        while rest:
            ready = [node for node in rest if node.master in found]
            assert ready
            found += ready
            rest = [node for node in rest if node not in ready]
        return found[1:]

    def below(self, node: Node) -> list[Node]:
        """Return the direct replicas of a node."""
        return [other for other in self.nodes if other.master is node]

    def describe(self) -> str:
        """Return the servers and the events so far."""
        return f"{'star' if self.star else 'chain'} {' '.join(map(str, self.nodes))}; {', '.join(self.events)}"

    # -- the round -------------------------------------------------------------------------------------------

    def play(self, events: int) -> None:
        """Run the round; AssertionError if something differs from what is expected."""
        with contextlib.ExitStack() as stack, self._explained():
            for node in self.nodes:
                stack.callback(node.close)
                node.start()
            self.load.run(self.root.client, 100)
            for at, node in enumerate(self.nodes[1:], 1):
                node.follow(self.nodes[0 if self.star else at - 1])
            self.settle()
            with Background(self._wait_for_keys()):
                for _ in range(events):
                    self._event()
                self.load.run(self.root.client, 100)
            self.settle()
            self.compare()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the state of the servers to an error."""
        try:
            yield
        except Exception as error:
            for node in self.nodes:
                with contextlib.suppress(Exception):
                    error.add_note(f"{node} at {node.port}: {node.facts()}")
            raise

    def _event(self) -> None:
        choices: list[tuple[float, Callable[[], None]]] = [
            (3, self.cuts), (3, self.handshake), (2, self.absent), (3, self.kill_replica), (2, self.restart_replica),
            (1, self.kill_master), (1, self.restart_master), (1, self.files), (2, self.promote), (3, self.fail_over),
            (1, self.hand_over), (1, self.regraft),
        ]  # fmt: skip
        event = self.chance.choices([event for _, event in choices], [weight for weight, _ in choices])[0]
        self.events.append(event.__name__)
        self.counts[event.__name__] += 1
        event()
        self.settle()

    def _wait_for_keys(self) -> Callable[[], None]:
        """Return a job whose client waits for lists, sorted sets and streams of the master."""
        chance = random.Random(self.seed)
        held: list[tuple[Node, redis.Redis]] = []

        def job() -> None:
            if not held or held[0][0] is not self.root:
                held[:] = [(self.root, self.root.connect(5))]
                held[0][1].execute_command("XGROUP", "CREATE", "bs", "g", "0", "MKSTREAM")
            words = chance.choice((
                ("BLPOP", "bl", "none", "0.05"), ("BLMOVE", "bl", "moved", "LEFT", "RIGHT", "0.05"),
                ("BZPOPMIN", "bz", "0.05"), ("XREAD", "BLOCK", "50", "STREAMS", "bs", "$"),
                ("XREADGROUP", "GROUP", "g", "c", "BLOCK", "50", "STREAMS", "bs", ">"),
            ))  # fmt: skip
            try:
                held[0][1].execute_command(*words)
            except redis.ResponseError:
                held[0][1].execute_command("XGROUP", "CREATE", "bs", "g", "0", "MKSTREAM")

        return job

    def settle(self) -> None:
        """Wait until each replica has everything."""
        for node in self.replicas():
            until(node.follows, f"{node} follows {node.master}")

    # -- links -----------------------------------------------------------------------------------------------

    def reconnect(self, node: Node, cuts: list[int] | None = None) -> None:
        """Open a link that is shut, and compare the resynchronisation with what is expected."""
        master = node.master
        assert master is not None
        until(lambda: self._is_quiet(master), f"{master} has no replica left")
        expected = self.continues(node, master)
        before = master.counters()
        node.open(cuts or [])
        until(node.follows, f"{node} follows {master}")
        full, partial = (now - old for now, old in zip(master.counters(), before, strict=True))
        self.counts["full"] += full
        self.counts["partial"] += partial
        what = f"{node} after {master}, {full} full and {partial} partial: {expected[1]}"
        if expected[0] is None:
            self.counts["expected either"] += 1
        elif expected[0]:
            assert (full, partial >= 1) == (0, True), what
            self.counts["expected partial"] += 1
        else:
            assert full >= 1, what
            self.counts["expected full"] += 1

    def _is_quiet(self, master: Node) -> bool:
        """Return whether a master has noticed that the links to it are cut, and sends nothing new."""
        open_ones = sum(node.link is not None and not node.link.shut for node in self.below(master))
        return int(master.facts()["connected_slaves"]) == open_ones

    @staticmethod
    def continues(node: Node, master: Node) -> tuple[bool | None, str]:
        """Return whether a master must continue the stream of a replica, and the reasons; None: it may.

        A master shortens a backlog that is too long later, in steps.
        """
        mine, its = node.facts(), master.facts()
        name, wanted = mine["master_replid"], int(mine["slave_repl_offset"]) + 1
        first, size = int(its["repl_backlog_first_byte_offset"]), int(its["repl_backlog_histlen"])
        same = name == its["master_replid"] or (
            name == its["master_replid2"] and wanted <= int(its["second_repl_offset"]))  # fmt: skip
        held = its["repl_backlog_active"] == "1" and first <= wanted <= first + size
        why = (f"{name}:{wanted} of {its['master_replid']}, {its['master_replid2']}:{its['second_repl_offset']}, "
               f"backlog {first} + {size}")  # fmt: skip
        if same and held and wanted < first + size - int(its["repl_backlog_size"]):
            return None, why
        if same and held and wanted == 2:  # 1 is also the offset of a replica without a position
            return None, why
        return same and held, why

    def _reconnect_all(self, nodes: list[Node], cuts: Callable[[], list[int]] = list) -> None:
        for node in nodes:
            self.reconnect(node, cuts())
            for other in self.below(node):
                until(other.follows, f"{other} follows {node}")

    # -- events ----------------------------------------------------------------------------------------------

    def cuts(self) -> None:
        """Cut links at random bytes while commands run."""
        node = self.chance.choice(self.replicas())
        master = node.master
        assert master is not None
        assert node.link is not None
        before = master.counters()
        for _ in range(self.chance.randrange(2, 6)):
            self.load.run(self.root.client, self.chance.randrange(20, 150))
            # A replica that loads a snapshot would have to begin again with each cut.
            node.open([self.chance.randrange(1, 9000)] if self.large else [])
            node.link.cut()
        node.open([])
        self.settle()
        full, partial = (now - old for now, old in zip(master.counters(), before, strict=True))
        self.counts["full"] += full
        self.counts["partial"] += partial
        if self.large:
            assert full == 0, f"{full} full resynchronisations of {node} with {master} despite its backlog"

    def handshake(self) -> None:
        """Cut three links in turn within the handshake."""
        node = self.chance.choice(self.replicas())
        node.shut()
        self.load.run(self.root.client, self.chance.choice((0, 1, 30)))
        self._settle_above(node)
        at = self.chance.randrange(1, HANDSHAKE)
        self.reconnect(node, [at, at + 1, at + 2])

    def absent(self) -> None:
        """Write while a replica is away: more or less than the backlog holds."""
        node = self.chance.choice(self.replicas())
        node.shut()
        self.load.run(self.root.client, self.chance.choice((10, 400)))
        self._settle_above(node)
        self.reconnect(node)

    def _settle_above(self, node: Node) -> None:
        """Wait until the master of a node has everything."""
        master = node.master
        while master is not None and master.master is not None:
            until(master.follows, f"{master} follows {master.master}")
            master = master.master

    def kill_replica(self) -> None:
        """Kill a replica, and start it again."""
        self._away(self.chance.choice(self.replicas()), Node.kill)

    def restart_replica(self) -> None:
        """Stop a replica, and start it again."""
        self._away(self.chance.choice(self.replicas()), Node.stop)

    def kill_master(self) -> None:
        """Kill the master, and start it again with the data that its files have."""
        self._away(self.root, Node.kill)

    def restart_master(self) -> None:
        """Stop the master, and start it again."""
        self._away(self.root, Node.stop)

    def _away(self, node: Node, end: Callable[[Node], None]) -> None:
        if self.chance.random() < 0.5:
            self._save(node)
        self.load.run(self.root.client, self.chance.choice((0, 20, 200)))
        busy = node is not self.root and self.chance.random() < 0.5
        with self._writing() if busy else contextlib.nullcontext():
            end(node)
        others = self.below(node)
        for other in others:
            other.shut()
        if node.link is not None:
            node.link.shut = True
        self.load.run(self.root.client, self.chance.choice((0, 20, 200))) if node is not self.root else None
        node.start()
        if node.link is not None:
            self._settle_above(node)
            self.reconnect(node)
        self._reconnect_all(others)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Run commands in another thread."""
        client = self.root.connect()

        def job() -> None:
            self.load.run(client, 20)

        with Background(job):
            threading.Event().wait(self.chance.random() * 0.2)
            yield
        client.close()

    def _save(self, node: Node) -> None:
        """Let a server write its RDB file."""
        with contextlib.suppress(redis.ResponseError):  # a child works
            node.client.execute_command("SAVE")

    def files(self) -> None:
        """Turn the log of a server on or off, and write files."""
        node = self.chance.choice(self.nodes)
        choice = self.chance.choice(("BGREWRITEAOF", "BGSAVE", "appendonly"))
        with contextlib.suppress(redis.ResponseError):
            if choice == "appendonly":
                now = node.client.execute_command("CONFIG", "GET", "appendonly")[1]
                node.client.execute_command("CONFIG", "SET", "appendonly", "no" if now == b"yes" else "yes")
            else:
                node.client.execute_command(choice)
        self.load.run(self.root.client, 50)

    # -- failovers -------------------------------------------------------------------------------------------

    def promote(self) -> None:
        """Promote a replica while the old master lives; the others follow it."""
        new, old = self.chance.choice(self.replicas()), self.root
        ahead = self.chance.random() < 0.3
        if ahead:  # changes that the new master lacks
            for node in self.below(old):
                node.shut()
            self.load.run(old.client, 5)
        self._take_over(new, [node for node in self.nodes if node is not new])

    def _take_over(self, new: Node, others: list[Node]) -> None:
        """Promote a replica, and let running servers follow it, some of them as a chain."""
        new.follow(None)
        self.root = new
        self.load.run(new.client, self.chance.choice((0, 1, 50)))
        above = [new]
        for node in others:
            if node.master is new:  # the new history makes it connect again
                until(node.follows, f"{node} follows {new}")
                above.append(node)
        for node in others:
            if node.master is not new:
                master = self.chance.choice(above)
                node.follow(master, shut=True)
                self._settle_above(node)
                self.reconnect(node)
                above.append(node)

    def regraft(self) -> None:
        """Let a replica follow another server of the same history."""
        leaves = [node for node in self.replicas() if not self.below(node)]
        node = self.chance.choice(leaves)
        master = self.chance.choice([other for other in self.nodes if other is not node])
        node.follow(master, shut=True)
        self.load.run(self.root.client, self.chance.choice((0, 1, 50)))
        self._settle_above(node)
        self.reconnect(node)

    def hand_over(self) -> None:
        """FAILOVER to a direct replica, which must lose nothing."""
        old = self.root
        new = self.chance.choice(self.below(old))
        old.client.execute_command("FAILOVER", "TO", "127.0.0.1", new.port, "TIMEOUT", "60000")
        until(lambda: new.facts()["role"] == "master" and old.facts()["master_failover_state"] == "no-failover",
              f"{old} hands over to {new}")  # fmt: skip
        assert new.link is not None
        new.link.__exit__()
        new.link, new.master, self.root = None, None, new
        old.follow(new, shut=True)
        self.load.run(new.client, self.chance.choice((0, 1, 50)))
        self.reconnect(old)

    def fail_over(self) -> None:
        """Kill the master under load, and promote the replica with the most data: no acknowledged write is lost."""
        old, candidates = self.root, self.below(self.root)
        enough = len(candidates) if self.chance.random() < 0.5 else 1
        acknowledged = self._write_and_kill(enough)
        new = max(candidates, key=lambda node: int(node.facts()["slave_repl_offset"]))
        for node in self.nodes:
            if node not in (old, new) and node.master is not new:
                until(node.is_cut_off, f"{node} notices the end")
        new.client.execute_command("SELECT", 0)
        found = int(new.client.execute_command("GET", "ledger") or 0)
        assert found >= acknowledged, f"{new} has {found}, but WAIT acknowledged {acknowledged} of {enough} replicas"
        self.counts["acknowledged"] += 1
        others = [node for node in self.nodes if node not in (old, new)]
        self._take_over(new, others)
        if old.link is not None:
            old.link.__exit__()
        old.lead_to(new)
        assert old.link is not None
        old.link.shut = True
        old.start()
        self.reconnect(old)

    def _write_and_kill(self, enough: int) -> int:
        """Write with WAIT until the master is killed under load; return the last acknowledged number."""
        old = self.root
        self.load.flushes = False
        client = old.connect()
        client.execute_command("SET", "ledger", self.number)
        acknowledged = [self.number]
        progress = threading.Event()
        wanted = self.number + self.chance.randrange(3, 25)

        said: object = None

        def write() -> None:
            nonlocal said
            try:
                number = int(client.execute_command("INCR", "ledger"))
                self.number = max(self.number, number)
                said = int(client.execute_command("WAIT", enough, 2000))
            except redis.RedisError as error:
                said = error
                raise
            if said >= enough:
                acknowledged[0] = number
                if number >= wanted:
                    progress.set()

        try:
            with self._writing(), Background(write):
                assert progress.wait(60), f"WAIT acknowledges only {acknowledged[0]} of {wanted}: {said!r}"
                old.kill()
        finally:
            self.load.flushes = True
            client.close()
        return acknowledged[0]

    # -- the end ---------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare the data of all servers with that of the master."""
        lasts(self.root.client)
        for node in self.replicas():
            found: list[str] = ["?"]
            for _ in range(5):  # what expires meanwhile differs for a moment
                until(node.follows, f"{node} follows {node.master}")
                found = differences(self.root.client, node.client, ignored=UNLIKE)
                if not found:
                    break
                threading.Event().wait(0.3)
            assert not found, f"{node} differs from {self.root}: {found[:5]}"
            for names in streams_unlike(self.root.client, node.client).values():
                self.counts.update(f"unlike {name}" for name in names)
        for node in self.nodes:
            for text in _CLEAN:
                assert not node.logged(text), f"the log of {node} contains {text}"


__all__ = ["Round", "RoundLoad"]
