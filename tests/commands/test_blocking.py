"""Blocked clients: the order of arrival across queues, and no useless tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rillet.protocol.reply_parser import parse_all
from rillet.runtime.blocking import KeyWaiters
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session


@dataclass(eq=False)
class Client:
    number: int
    queue: bytes | None


def line(*queues: bytes | None) -> tuple[KeyWaiters, list[Client]]:
    waiters = KeyWaiters()
    clients = [Client(number, queue) for number, queue in enumerate(queues)]
    for client in clients:
        waiters.add(client)
    return waiters, clients


def noting(asked: list[Session], serve: Callable[[Session, bytes], bool]) -> Callable[[Session, bytes], bool]:
    """Return a serve function that records its sessions."""

    def noted(session: Session, key: bytes) -> bool:
        asked.append(session)
        return serve(session, key)

    return noted


def test_clients_are_tried_in_the_order_of_arrival_until_the_first_refusal_of_a_queue() -> None:
    waiters, clients = line(None, b"g", b"h", b"g", None, b"h")
    assert list(waiters) == clients
    assert len(waiters) == 6
    turns, asked = waiters.turns(), []
    while (client := turns.next()) is not None:
        asked.append(client.number)
        if client.queue == b"g":
            waiters.remove(client)  # served
        else:
            turns.refused(client)
    assert asked == [0, 1, 2, 3, 4]
    assert [client.number for client in waiters] == [0, 2, 4, 5]
    for client in clients:
        waiters.remove(client)
    assert not waiters
    assert waiters.turns().next() is None


def test_a_client_that_blocks_during_a_round_waits_for_the_next_round() -> None:
    waiters, (first,) = line(b"g")
    turns = waiters.turns()
    assert turns.next() is first
    waiters.remove(first)
    waiters.add(Client(1, b"g"))
    assert turns.next() is None
    assert len(waiters) == 1


def test_a_client_that_leaves_before_its_turn_is_skipped() -> None:
    waiters, clients = line(b"g", b"h", b"g", None, b"h", b"i")
    turns, asked = waiters.turns(), []
    while (client := turns.next()) is not None:
        asked.append(client.number)
        if client.number == 0:
            for number in (1, 5):
                waiters.remove(clients[number])
        waiters.remove(client)
    assert asked == [0, 2, 3, 4]
    assert not waiters


def test_one_entry_serves_one_client_and_the_others_are_not_tried() -> None:
    engine = Engine()
    admin = engine.session()

    def run(session: Session, *words: bytes) -> list[object]:
        engine.execute(session, list(words))
        return parse_all(session.out.take_bytes())

    run(admin, b"XGROUP", b"CREATE", b"s", b"g", b"$", b"MKSTREAM")
    sessions = [engine.session() for _ in range(50)]
    for number, session in enumerate(sessions):
        run(session, b"XREADGROUP", b"GROUP", b"g", b"c%d" % number, b"BLOCK", b"0", b"STREAMS", b"s", b">")
    asked: list[Session] = []
    for session in sessions:
        assert session.blocked is not None
        session.blocked.serve = noting(asked, session.blocked.serve)
    for served in range(3):
        run(admin, b"XADD", b"s", b"%d-1" % (served + 1), b"f", b"v")
        (reply,) = parse_all(sessions[served].out.take_bytes())
        assert reply == [[b"s", [[b"%d-1" % (served + 1), [b"f", b"v"]]]]]
        assert asked == sessions[served : served + 2]  # the one that was served, and the first that was not
        asked.clear()
    engine.check()
