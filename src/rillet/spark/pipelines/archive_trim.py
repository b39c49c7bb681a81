"""Trimming of archived streams with XTRIM MINID, after a commit has synced the files and the manifest to disk.

Trimming never removes

    the last archived entry          while it exists, no later entry can have been trimmed
    entries that a group needs       entries after its last-delivered-id, and its oldest pending entry

So a stream keeps the entries that its slowest group needs. If a stream no longer has the last archived entry, the
stream is not trimmed: it may be a new stream of the same name, whose entries are not archived. A server cannot list
readers without a group, such as another Spark job, so trimming does not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rillet.client.errors import ConnectorError
from rillet.spark.archive.manifest import ArchiveManifest
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.client.servers import Servers


def trim_errors(options: Options) -> list[str]:
    """Return an error message for each read option that excludes entries: trimming would delete unarchived entries."""
    skipping = [name for name in ("startingOffsets", "startingTimestamp") if name.lower() in options.named]
    errors = [f"trim would remove entries before {name}, which are not archived" for name in skipping]
    if options.mode == "DROPMALFORMED":
        errors.append("trim would remove entries that mode=DROPMALFORMED leaves out of the archive")
    if options.bad_records is not None:
        errors.append("trim would remove entries that badRecords leaves out of the archive")
    return errors


def trim_streams(servers: Servers, manifest: ArchiveManifest, streams: Iterable[str]) -> int:
    """Remove archived entries that no group needs; return their number."""
    removed = 0
    for stream in streams:
        key, last = stream.encode(), manifest.held(stream)
        if last == EARLIEST:
            continue
        try:
            last_id = b"%d-%d" % last
            if not servers.call(key, b"XRANGE", key, last_id, last_id):
                continue  # a new stream of the same name, or trimmed by another client
            bound = min([last, *needed(servers, key)])
            removed += servers.call(key, b"XTRIM", key, b"MINID", b"=", b"%d-%d" % bound)
        except ConnectorError as error:
            if "no such key" not in str(error):
                raise ConnectorError(f"{error} (trimming the archived stream {stream!r})") from None
    return removed


def needed(servers: Servers, key: bytes) -> list[StreamID]:
    """Return the last-delivered-id of each group of a stream, and the ID of the group's oldest pending entry."""
    from rillet.spark.pipelines.group_info import xinfo_groups

    bounds = []
    for group in xinfo_groups(servers, key):  # no bounds if the stream has no groups
        bounds.append(StreamID.parse(group["last-delivered-id"]))
        if group["pending"]:
            oldest = servers.call(key, b"XPENDING", key, group["name"])[1]
            if oldest is not None:
                bounds.append(StreamID.parse(oldest))
    return bounds
