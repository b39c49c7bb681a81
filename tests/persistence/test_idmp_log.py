"""The state of idempotent producers survives a restart: from a log, a base of commands, or an RDB base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from rillet.types.rdb.value import dump
from tests.persistence.state import Opened, rewrite

T0 = 1_700_000_000_000


def opened(folder: Path, now: int, **settings: Any) -> Opened:
    one = Opened(folder, now=now)
    one.engine.settings.compat = COMPATS["newest"]
    for name, value in settings.items():
        setattr(one.engine.settings, name, value)
    one.engine.take_settings()
    return one


def whole(one: Opened) -> dict[bytes, bytes]:
    """Return the complete content of each stream as bytes, including expired messages."""
    one.engine.databases[0].check()
    return {key: dump(value, False, COMPATS["newest"]) for key, value in one.engine.databases[0].items()}


def work(one: Opened) -> None:
    one("XADD", "s", "*", "plain", 1)
    one("XCFGSET", "s", "IDMP-DURATION", 10, "IDMP-MAXSIZE", 5)
    for number in range(40):
        one.clock.us += 900_000
        one("XADD", "s", "IDMP", "p", number % 12, "*", "n", number)
        one("XADD", "s", "MAXLEN", "~", 10, "IDMPAUTO", "auto", "*", "n", number % 4)
        one("XADD", "t", "IDMP", "p", number % 3, "*", "n", number)
    one("CONFIG", "SET", "stream-idmp-duration", 7)
    one("XADD", "other", "IDMP", "p", "i", "*", "n", 1)
    one("COPY", "s", "copy")
    one("RENAME", "t", "named")


def test_a_log_restores_the_producers(tmp_path: Path) -> None:
    with opened(tmp_path, T0) as first:
        work(first)
        now = first.clock.now_ms()
        entries = {key: first("XRANGE", key, "-", "+") for key in ("s", "named", "other", "copy")}
        tracked = _tracked(first, now)
    # Opened without settings: a log holds no CONFIG SET, so that a new stream has the limits of the one who replays.
    with opened(tmp_path, now) as again:
        assert {key: again("XRANGE", key, "-", "+") for key in entries} == entries
        found = _tracked(again, now)
        assert {key: found[key] for key in (b"s", b"named", b"copy")} == {
            key: tracked[key] for key in (b"s", b"named", b"copy")
        }
        before = again("XLEN", "s")
        again("XADD", "s", "IDMP", "p", 39 % 12, "*", "n", 0)
        assert again("XLEN", "s") == before


def test_a_log_restores_a_stream_with_the_limits_that_restore_gave_it(tmp_path: Path) -> None:
    with opened(tmp_path / "from", T0) as source:
        source("XADD", "s", "1-1", "f", "v")
        payload = source("DUMP", "s")
    with opened(tmp_path / "to", T0, stream_idmp_duration=77) as first:
        first("RESTORE", "s", 0, payload)
        first("RESTORE", "t", T0 + 1000, payload, "ABSTTL")
        before = whole(first)
    with opened(tmp_path / "to", T0) as again:
        assert whole(again) == before
        assert again.engine.databases[0].peek(b"t").idmp.duration == 77


def _tracked(one: Opened, now: int) -> dict[bytes, Any]:
    """Return limits, counters and recorded messages, after a run of the cron."""
    found = {}
    for key, stream in one.engine.databases[0].items():
        known = stream.idmp
        known.expire(now)
        messages = {pid: known.unexpired(pid, 0) for pid in known.producers}
        found[key] = (known.duration, known.max_entries, known.added, known.duplicates, messages)
    return found


@pytest.mark.parametrize("preamble", ["yes", "no"], ids=["an RDB base", "a base of commands"])
@pytest.mark.parametrize("duration", [100, 3])
def test_a_base_restores_the_producers_under_any_settings(tmp_path: Path, preamble: str, duration: int) -> None:
    with opened(tmp_path, T0) as first:
        work(first)
        before = whole(first)
        # An hour later: what has expired since is still in the base, and goes with the next cron.
        first.clock.us += 3_600_000_000
        first.engine.settings.set_text("aof-use-rdb-preamble", preamble)
        engine, folder = first.engine, first.log.folder
    rewrite(folder, engine)
    later = T0 + 10_000_000
    with Opened(tmp_path, now=later) as again:
        again.engine.settings.set_text("stream-idmp-duration", str(duration))
        assert whole(again) == before
        assert set(again.engine.databases[0].idmp_keys) == set(before), "the cron finds them"
        again.clock.us += 1000
        again.engine.expire_cycle()
        assert not any(value.idmp.producers for _, value in again.engine.databases[0].items())


def test_a_log_of_an_older_server_is_read_at_any_compat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 7.0, XSETID could set the last ID below a deleted one."""
    with Opened(tmp_path) as first:
        for line in ("XADD s 5-5 a b", "XDEL s 5-5", "XSETID s 3-3"):
            first(*line.split())
    monkeypatch.setattr("tests.persistence.state.Settings", lambda compat: Settings(compat="newest"))
    with Opened(tmp_path) as again:
        assert again.engine.settings.compat is COMPATS["newest"]
        info = again("XINFO", "STREAM", "s")
        assert info[info.index(b"last-generated-id") + 1] == b"3-3"
        assert str(again("XSETID", "s", "4-4")).endswith("smaller than current max_deleted_entry_id")
