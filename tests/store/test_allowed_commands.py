"""Commands that `execute` rejects: they would give later calls other replies, or change the shared connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rillet.errors import CommandError
from rillet.store import Store

MORE_REPLIES = [["MONITOR"], ["SYNC"], ["psync", "?", "-1"], ["REPLCONF", "ACK", "0"]]
ENDS = [["QUIT"], ["reset"], ["HELLO", "2"], ["CLIENT", "TRACKING", "ON"]]


def refused(store: Store, argv: list[Any], reason: str) -> None:
    """Check that each way to execute a command rejects it, and that later calls get their own replies."""

    async def tasks() -> None:
        twin = store.aio()
        with pytest.raises(CommandError, match=reason):
            await twin.execute(*argv)
        with pytest.raises(CommandError, match=reason):
            await twin.execute_many([["PING"], argv])
        assert await asyncio.gather(*(twin.execute("ECHO", n) for n in range(5))) == [b"%d" % n for n in range(5)]

    with pytest.raises(CommandError, match=reason):
        store.execute(*argv)
    with pytest.raises(CommandError, match=reason):
        store.execute_many([["PING"], argv])
    with store.transaction() as transaction, pytest.raises(CommandError, match=reason):
        transaction.execute(*argv)
    assert [store.execute("ECHO", n) for n in range(5)] == [b"%d" % n for n in range(5)]
    asyncio.run(tasks())


@pytest.mark.parametrize("argv", [*MORE_REPLIES, *ENDS], ids=lambda argv: argv[0].upper())
def test_what_spoils_later_replies_is_refused(store: Store, argv: list[str]) -> None:
    refused(store, argv, r"^ERR (MONITOR|P?SYNC|REPLCONF|QUIT|RESET|HELLO|CLIENT TRACKING) .*cannot be executed")


def test_hello_without_a_version_is_accepted(store: Store) -> None:
    assert store.execute("HELLO")


def test_what_drops_replies_is_refused(store: Store) -> None:
    for argv in (["CLIENT", "REPLY", "OFF"], ["client", "reply", "skip"], ["CLIENT", "REPLY", "ON"]):
        refusal = r"^ERR CLIENT REPLY cannot be executed, because every call waits for a reply"
        with pytest.raises(CommandError, match=refusal):
            store.execute(*argv)
        with pytest.raises(CommandError, match=r"^ERR CLIENT REPLY cannot be executed"):
            store.execute_many([["PING"], argv])
    assert store.execute("PING") == b"PONG"


def test_what_has_more_than_one_reply_is_refused(store: Store) -> None:
    for word in ("SUBSCRIBE", "psubscribe", "SSUBSCRIBE", "UNSUBSCRIBE"):
        with pytest.raises(CommandError, match=r"use Store.subscribe\(\)"):
            store.execute(word, "a")
    with pytest.raises(CommandError, match=r"use Store.subscribe\(\)"):
        store.execute_many([["SUBSCRIBE", "a"]])
