"""The second link of a full synchronisation, which carries the snapshot, without a socket (Redis 8: the RDB channel).

    AUTH user password ► +OK                                       with `masterauth`
    REPLCONF capa eof, rdb-only 1, rdb-channel 1,                  client: the number of the first link, from its reply
             main-ch-client-id client, listening-port, ... ► +OK   +RDBCHANNELSYNC
    PSYNC ? -1 ► LF ...                                            the master waits for other replicas
                 +FULLRESYNC id offset                             the stream on the first link begins at this offset
                 $EOF:<mark> CR LF <bytes> <mark>, or $<size>      as on one link (handshake.py); then the link ends

Unlike on the first link, every error ends the synchronisation.
(Redis: replication.c, rdbChannelFullSyncWithMaster and the functions that it calls.)
"""

from __future__ import annotations

from rillet.replication.errors import LinkError
from rillet.replication.handshake import Event, LinkOptions, Phase, SnapshotLink, encode, full_sync, shown_line


class ChannelLink(SnapshotLink):
    """The second link to a master; `client`: the number of the first link at the master."""

    after_snapshot: Phase = "done"

    def __init__(self, options: LinkOptions, client: int) -> None:
        super().__init__()
        self.phase = "handshake"
        self._awaits_auth = bool(options.password)
        if options.password:
            self._out.append(encode(b"AUTH", *([options.user] if options.user else []), options.password))
        words = [b"capa", b"eof", b"rdb-only", b"1", b"rdb-channel", b"1", b"main-ch-client-id", b"%d" % client,
                 b"listening-port", b"%d" % options.port]  # fmt: skip
        if options.ip:
            words += [b"ip-address", options.ip]
        self._out.append(encode(b"REPLCONF", *words))

    def _answer(self, line: bytes, events: list[Event]) -> None:
        if self.phase == "psync":
            self._resync(line, events)
        elif line.startswith(b"-"):
            what = "Unable to AUTH to master" if self._awaits_auth else "Master replied error to replconf"
            raise LinkError(f"{what}: {shown_line(line)}")
        elif self._awaits_auth:
            self._awaits_auth = False
        else:
            self._out.append(encode(b"PSYNC", b"?", b"-1"))
            self.phase = "psync"

    def _resync(self, line: bytes, events: list[Event]) -> None:
        if not line:
            return  # the master is alive
        if not line.startswith(b"+FULLRESYNC "):
            raise LinkError(f"Received unexpected psync reply: {shown_line(line)}")
        self.phase = "header"
        events.append(full_sync(line.split(b" ")))
