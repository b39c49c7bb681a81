"""HOTKEYS: find the keys that take most time or network traffic (Redis 8.6: hotkeys.c)."""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import integer
from rillet.commands.help_texts import declare_help
from rillet.commands.replies import write_tree
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.hotkeys import HotKeys
from rillet.runtime.session import Session

_FLAGS = "admin noscript"
_METRICS = 2
_LAST_SLOT = 16383


def _between(raw: bytes, low: int, high: int, message: str) -> int:
    number = integer(raw, message)
    if not low <= number <= high:
        raise CommandError(message)
    return number


def _current(session: Session) -> Any:
    """Return the session of HOTKEYS, ended if its time has passed; None without one."""
    hotkeys, now = session.engine.command_log.hotkeys, session.engine.clock.now_ms()
    if hotkeys is not None and hotkeys.active and hotkeys.duration and now - hotkeys.start >= hotkeys.duration:
        hotkeys.stop(now)
        session.engine.take_settings()
    return hotkeys


@command("hotkeys|start", arity=-2, flags=_FLAGS, since="8.6.0", complexity="O(1)",
         syntax="METRICS count [CPU] [NET] [COUNT k] [DURATION duration] [SAMPLE ratio] [SLOTS count slot [slot ...]]")
def hotkeys_start(session: Session, argv: list[bytes]) -> None:
    """Begin to count the time (CPU) or the bytes (NET) of each key's commands."""
    current = _current(session)
    if current is not None and current.active:
        raise CommandError("hotkey tracking session already in progress")
    if len(argv) < 4 or argv[2].lower() != b"metrics":
        raise CommandError("METRICS parameter is required")
    count = _between(argv[3], 1, _METRICS, f"METRICS count must be > 0 and <= {_METRICS}")
    metrics = _metrics([word.lower() for word in argv[4 : 4 + count]], count)
    keys, duration, ratio = _options(argv[4 + count :])
    engine = session.engine
    engine.command_log.hotkeys = HotKeys(keys, duration, ratio, time=b"cpu" in metrics, traffic=b"net" in metrics,
                             now=engine.clock.now_ms())  # fmt: skip
    engine.take_settings()
    session.out.ok()


def _metrics(words: list[bytes], count: int) -> set[bytes]:
    found: set[bytes] = set()
    for word in words:
        if word in (b"cpu", b"net"):
            if word in found:
                raise CommandError(f"METRICS {word.decode().upper()} defined more than once!")
            found.add(word)
    if len(words) != count:
        raise CommandError("METRICS count does not match number of metric types provided")
    if not found:
        raise CommandError("METRICS no valid metrics passed. Supported: CPU|NET")
    return found


def _options(words: list[bytes]) -> tuple[int, int, int]:
    """Return the number of keys, the duration in milliseconds and the sample ratio."""
    keys, duration, ratio, at = 10, 0, 1, 0
    while at < len(words):
        word = words[at].lower() if at + 1 < len(words) else b""
        if word == b"count":
            keys = _between(words[at + 1], 1, 64, "COUNT must be between 1 and 64")
        elif word == b"duration":
            duration = 1000 * _between(words[at + 1], 1, 1_000_000, "DURATION must be between 1 and 1000000")
        elif word == b"sample":
            ratio = _between(words[at + 1], 1, 2**31 - 1, "SAMPLE ratio must be positive")
        elif word == b"slots":
            raise CommandError("SLOTS parameter cannot be used in non-cluster mode")
        else:
            raise CommandError("syntax error")
        at += 2
    return keys, duration, ratio


@command("hotkeys|stop", arity=2, flags=_FLAGS, since="8.6.0", complexity="O(1)")
def hotkeys_stop(session: Session, argv: list[bytes]) -> None:
    """End the counting and keep the results."""
    hotkeys = _current(session)
    if hotkeys is None or not hotkeys.active:
        session.out.null()
        return
    hotkeys.stop(session.engine.clock.now_ms())
    session.engine.take_settings()
    session.out.ok()


@command("hotkeys|reset", arity=2, flags=_FLAGS, since="8.6.0", complexity="O(1)")
def hotkeys_reset(session: Session, argv: list[bytes]) -> None:
    """Forget the results."""
    hotkeys = _current(session)
    if hotkeys is not None and hotkeys.active:
        raise CommandError("hotkey tracking session in progress, stop tracking first")
    session.engine.command_log.hotkeys = None
    session.out.ok()


@command("hotkeys|get", arity=2, flags=_FLAGS, since="8.6.0", complexity="O(N) for N counted keys")
def hotkeys_get(session: Session, argv: list[bytes]) -> None:
    """Return the keys with the largest numbers, and the sums of all commands."""
    hotkeys = _current(session)
    if hotkeys is None:
        session.out.null()
        return
    now = session.engine.clock.now_ms()
    reply: dict[bytes, Any] = {
        b"tracking-active": int(hotkeys.active), b"sample-ratio": hotkeys.ratio,
        b"selected-slots": [[0, _LAST_SLOT]], b"all-commands-all-slots-us": hotkeys.microseconds,
        b"net-bytes-all-commands-all-slots": hotkeys.bytes, b"collection-start-time-unix-ms": hotkeys.start,
        b"collection-duration-ms": now - hotkeys.start if hotkeys.active else hotkeys.duration,
    }  # fmt: skip
    if hotkeys.time is not None:
        user, system = hotkeys.cpu_milliseconds()
        reply |= {b"total-cpu-time-user-ms": user, b"total-cpu-time-sys-ms": system}
    if hotkeys.traffic is not None:
        reply[b"total-net-bytes"] = hotkeys.traffic.total
    for name, top in ((b"by-cpu-time-us", hotkeys.time), (b"by-net-bytes", hotkeys.traffic)):
        if top is not None:
            reply[name] = [word for pair in top.largest(hotkeys.keys) for word in pair]
    write_tree(session.out, [reply])


declare_help("hotkeys", "server", "8.6.1")
