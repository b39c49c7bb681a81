"""The time for which a command may block in the server: the timeout among its arguments.

    XREAD, XREADGROUP        BLOCK milliseconds
    BLPOP, BZPOPMIN ...      seconds, the last argument
    BLMPOP, BZMPOP           seconds, the first argument
    WAIT, WAITAOF            milliseconds, the last argument

0 means without limit: infinity here. A client with a timeout for replies waits so much longer for such a command.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_LAST_SECONDS = frozenset((b"BLPOP", b"BRPOP", b"BRPOPLPUSH", b"BLMOVE", b"BZPOPMIN", b"BZPOPMAX"))
_FIRST_SECONDS = frozenset((b"BLMPOP", b"BZMPOP"))
_LAST_MILLISECONDS = frozenset((b"WAIT", b"WAITAOF"))
_READS = frozenset((b"XREAD", b"XREADGROUP"))
BLOCKING = _LAST_SECONDS | _FIRST_SECONDS | _LAST_MILLISECONDS | _READS


def block_seconds(argv: Sequence[bytes]) -> float:
    """Return how many seconds a command may wait in the server; 0 for one that does not wait, or is malformed."""
    name = argv[0].upper()
    if name not in BLOCKING:
        return 0.0
    try:
        if name in _READS:
            return _of_read(name, argv)
        if name in _LAST_MILLISECONDS:
            return _limit(int(argv[-1]) / 1000)
        return _limit(float(argv[1] if name in _FIRST_SECONDS else argv[-1]))
    except (ValueError, IndexError):
        return 0.0


def block_seconds_of_all(commands: Iterable[Sequence[bytes]]) -> float:
    """Return how many seconds commands that run in order may wait."""
    return sum(map(block_seconds, commands))


def _of_read(name: bytes, argv: Sequence[bytes]) -> float:
    place = 4 if name == b"XREADGROUP" else 1  # after GROUP, the group and the consumer, which may be named BLOCK
    for at in range(place, len(argv)):
        option = argv[at].upper()
        if option == b"BLOCK":
            return _limit(int(argv[at + 1]) / 1000)
        if option == b"STREAMS":
            break
    return 0.0


def _limit(seconds: float) -> float:
    return seconds if seconds > 0 else math.inf
