"""The streams of a pattern that changed since the last trigger, from a rillet server: RILLET.CHANGES.

A query over many streams spends its time on those that have not changed: it lists the keys, and reads the state of each
stream, to find that. A rillet server lists the streams that changed. Redis and Valkey do not know the command, and a
cluster has a position for each node; there, every trigger looks at all streams.

    all_or_changed() -> None            look at all streams: at the first time, and after a restart of the server
                     -> ["a", "b"]      these have changed, appeared or ended
    wait()           -> False           nothing has changed for a tenth of a second

The position is read before the streams, so what changes meanwhile is listed next time. A lost connection loses the
reply: `forget` makes the next look one at all streams.
"""

from __future__ import annotations

import time
from typing import Any

from rillet.client.servers import Servers, is_text
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic

PAUSE = 0.05  # seconds between two questions of an idle query


class ChangedStreams:
    """Asks a rillet server for the streams of a pattern that changed since the last question."""

    def __init__(self, servers: Servers, pattern: str | None) -> None:
        """pattern: None if the query selects streams in another way, so that nothing is asked."""
        self.servers = servers
        self.pattern = (pattern or "").encode()
        self.possible = pattern is not None
        self._position = b"0"

    @property
    def known(self) -> bool:
        """Return whether the server lists changes."""
        return self._position != b"0"

    def forget(self) -> None:
        """Look at all streams next time."""
        self._position = b"0"

    def all_or_changed(self) -> list[str] | None:
        """Return the streams that changed since the last call, or None if all may have."""
        if not self.possible or self.servers.is_cluster:
            return None
        reply = self._ask()
        if reply is None:
            self.possible = False
            return None
        self._position, names = reply
        return None if names is None else [name.decode() for name in names if is_text(name)]

    def wait(self, seconds: float) -> bool:
        """Wait for a change; return False if none has come in this time."""
        until = monotonic() + seconds
        while True:
            reply = self._ask()
            if reply is None or reply[1] is None or reply[1]:
                return True
            left = until - monotonic()
            if left <= 0:
                return False
            time.sleep(min(PAUSE, left))

    def _ask(self) -> Any:
        """Return the reply; None if the server does not know the command, or forbids it."""
        (reply,) = self.servers.replies(b"", [(b"RILLET.CHANGES", self._position, b"MATCH", self.pattern)])
        return None if isinstance(reply, ReplyError) else reply
