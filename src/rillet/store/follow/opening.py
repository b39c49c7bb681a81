"""rillet.follow: opens a replica of a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rillet.errors import StoreError, StoreTimeout
from rillet.modules.loading import named_modules
from rillet.store.arguments.argument_checks import items_of, whole_number
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.arguments.store_settings import MEMORY, settings_of
from rillet.store.follow.directory import FollowDirectory
from rillet.store.follow.replica import FollowBackend, Replica
from rillet.store.transports.connected import options_of

BACKLOG = 16 << 20
TIMEOUT = 60.0


def follow(url: str, path: str | os.PathLike[str] | None = None, *, keys: Iterable[str] = (), backlog: int = BACKLOG,
           timeout: Seconds | None = TIMEOUT, modules: Sequence[Any] = (), **settings: Any) -> Replica:  # fmt: skip
    """Return a read-only store in this process that replication keeps equal to a server.

    url: as for `rillet.connect`; not that of a cluster, each of whose masters has a stream. A database in the url is
    the one that the store shows. path: a directory that keeps the data, so that a restart continues where it ended;
    without one, the data is in memory only. keys: globs; other keys are not kept. backlog: bytes of changes that are
    held for consumers of `changes()`.
    timeout: seconds to wait for the first data, unless the directory holds some (StoreTimeout); None waits without
    limit, and 0 returns at once: until there is data, reads raise MasterDown. modules, settings: as for `rillet.open`.
    """
    globs = [str(decode(encode_name(glob, "one of keys"))) for glob in items_of(keys, "keys", "globs")]
    whole_number(backlog, "backlog", 0)
    if path is not None and not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path must be a str or a path, or None to keep the data in memory, not {path!r:.200}")
    options = options_of(url)
    if options.seeds():
        raise StoreError("a cluster has no common stream of changes: follow each of its masters (redis://host:port)")
    seconds = None if timeout is None else seconds_in(timeout, "timeout")
    of_modules = {name: settings.pop(name) for name in list(settings) if "." in name}
    loaded = named_modules(modules, of_modules, shared=False)
    given = settings_of(MEMORY, settings)
    if options.server.db >= given.databases:
        raise ValueError(f"the url selects database {options.server.db}; the setting databases is {given.databases}")
    directory = None if path is None else FollowDirectory(os.path.expanduser(os.fsdecode(path)), globs)
    try:
        backend = FollowBackend(given, options.server, globs, directory, backlog, loaded)
    except BaseException:
        if directory is not None:
            directory.close()
        raise
    replica = Replica(backend)
    if seconds != 0:
        try:
            _await_data(replica, backend, seconds)
        except BaseException:
            replica.close()
            raise
    return replica


def _await_data(replica: Replica, backend: FollowBackend, seconds: float | None) -> None:
    """Wait for the first data; StoreTimeout, or StoreError if it makes no sense to wait."""
    link = backend.link

    def has_data() -> bool:
        if link.fatal is not None and not link.synced.is_set():
            raise StoreError(str(link.fatal).removeprefix("rillet: ")) from link.fatal
        return link.synced.is_set()

    try:
        replica._wait(has_data, "the first data", seconds)
    except StoreTimeout as error:
        raise error from None
