"""Opening a store: rillet.open for a directory or memory, rillet.connect for a server.

A store can be pickled if its data is not in memory only; another process then opens the same directory with the same
options (`_open_existing`), or connects to the same server (`_connected`).
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rillet.errors import StoreError
from rillet.store.arguments.argument_checks import flag, one_of
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.store_settings import FILES, MEMORY, differences, missing_modules, settings_of
from rillet.store.backends.backend import MemoryBackend
from rillet.store.store import Store

if TYPE_CHECKING:
    from rillet.modules.loading import OpenModules

# Connections of attached processes; each waiting task of asyncio has one. The limit of open files is the actual limit:
# the owner rejects the connections beyond it.
_MAX_CLIENTS = 1_000_000
# Seconds in which an owner or a server answers, unless it hangs: longer than any command of a healthy one.
TIMEOUT = 60.0
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open(path: str | os.PathLike[str] | None = None, *, appendfsync: Literal["always", "everysec", "no"] = "everysec",
         readonly: bool = False, create: bool = True, progress: Callable[[int, int], None] | None = None,
         owner: Literal["this", "process"] = "this", owner_grace: Seconds = 5.0, timeout: Seconds | None = TIMEOUT,
         modules: Sequence[Any] = (), **settings: Any) -> Store:  # fmt: skip
    """Open a store: in memory without a path or with ":memory:", durable in a directory with one.

    path: "~" at its beginning is the home directory ("./~" is a directory of that name). ValueError for a url. A new
    directory is created in an existing one; StoreError if that is missing.
    create: if False, a path at which there is no store raises NotAStore, and nothing is created.
    appendfsync: "always" (a call returns when its change is on disk), "everysec" (a power loss loses at most the last
    second; a crash of this process loses nothing), "no" (the system decides when to sync).
    readonly: load the data that the directory holds now, also while another process owns it, and change no file; writes
    raise ReadOnly.
    owner: the process that owns the directory if no other process does. "this": this one, which then runs the engine
    for all. "process": a separate small process, which starts with its first client and ends `owner_grace` seconds
    after its last one (the value of the client that started it applies); no client's computation delays the others.
    timeout: seconds within which the owner must answer an attached store, in addition to the time that a call itself
    waits (`block`); None waits without limit. StoreTimeout if it does not, UnknownTimeout if a write was sent.
    modules: types and commands in Python to load first (docs/modules.md): names ("bloom", "package.module"), paths of
    files, or tuples of these with arguments; in memory also a rillet.modules.Module. A setting of a module has a name
    with a dot: **{"bloom.error-rate": 0.001}.
    settings: parameters of redis.conf, with `_` in place of `-`. ValueError for one that would have no effect.
    If another process owns the directory, its settings apply; a RuntimeWarning names those that differ.
    progress(bytes read, total bytes) is called while the log is replayed, in place of the bar that a terminal shows.
    Each write to the log has a checksum (aof_checksums=False writes the same bytes as redis-server).
    """
    owner_grace = seconds_in(owner_grace, "owner_grace")
    timeout = None if timeout is None else seconds_in(timeout, "timeout")
    _check_open(path, readonly, create, progress)
    of_modules = {name: settings.pop(name) for name in list(settings) if "." in name}
    in_memory = path is None or path == ":memory:" or readonly
    loaded: OpenModules = ((), {})
    if modules or of_modules:
        from rillet.modules.loading import named_modules

        loaded = named_modules(modules, of_modules, shared=not in_memory)
    _check_client_options(owner, owner_grace, timeout)
    path = None if path is None else os.path.expanduser(os.fsdecode(path))
    if path is not None and (scheme := _URL.match(path)):
        raise ValueError(f"{scheme[0]}... is a url, not the path of a directory: use rillet.connect(url) for a server")
    if path is None or path == ":memory:":
        if readonly:
            raise ValueError("readonly=True needs the path of a directory")
        if owner == "process":
            raise ValueError("owner='process' needs the path of a directory")
        if not create:
            raise ValueError("create=False needs the path of a directory")
        return Store(MemoryBackend(settings_of(MEMORY, {"appendfsync": appendfsync, **settings}),
                                   modules=loaded if modules or of_modules else None))  # fmt: skip
    one_of(appendfsync, "appendfsync", ("always", "everysec", "no"))
    if readonly and owner == "process":
        raise ValueError("readonly=True needs no owner: omit owner='process'")
    if readonly:
        from rillet.store.backends.read_only import ReadOnlyBackend

        snapshot = ReadOnlyBackend(path, settings_of(FILES, settings), progress, loaded)
        again = {"readonly": True, "modules": loaded[0], **settings, **of_modules}
        return Store(snapshot, (_open_existing, os.path.abspath(path), again))
    from rillet.host.directory import Directory
    from rillet.store.sharing.directory_backend import DirectoryBackend

    defaults = {"aof_checksums": True, "log_entries_read": True, "maxclients": _MAX_CLIENTS}
    named = {**defaults, "appendfsync": appendfsync, **settings}
    given = settings_of(FILES, named)
    directory = Directory(path, given.dbfilename, create)
    backend = DirectoryBackend(directory, given, progress, timeout, loaded)
    options = {"appendfsync": appendfsync, "timeout": timeout, "modules": loaded[0], **settings, **of_modules}
    if owner == "process":
        from rillet.store.sharing.separate_backend import SeparateBackend

        backend = SeparateBackend(directory, given, named, progress, timeout, owner_grace, loaded)
        options |= {"owner": owner, "owner_grace": owner_grace}
    store = Store(backend, (_open_existing, os.path.abspath(path), options))
    asked = [*settings, *(["appendfsync"] if appendfsync != "everysec" else [])]
    if asked and not store.owner and (other := differences(store, given, asked)):
        warnings.warn(f"{path}: the settings of the process that owns the store apply: {'; '.join(other)}",
                      RuntimeWarning, stacklevel=2)  # fmt: skip
    if loaded[0] and not store.owner and (missing := missing_modules(store, loaded)):
        warnings.warn(f"{path}: the process that owns the store has not loaded {', '.join(missing)}; its modules apply",
                      RuntimeWarning, stacklevel=2)  # fmt: skip
    return store


def connect(url: str, *, timeout: Seconds | None = TIMEOUT) -> Store:
    """Return the same API over a server: redis://host:port/db, rediss://, unix://, redis+cluster://host:port,...

    redis+sentinel://host:port,.../service: the master of a service that Sentinels watch, also after a failover.
    timeout: seconds within which the server must answer, in addition to the time that a call itself waits (`block`);
    None waits without limit. StoreTimeout if it does not, UnknownTimeout if a write was sent.
    """
    timeout = None if timeout is None else seconds_in(timeout, "timeout")
    _check_client_options("this", 0.0, timeout)
    from rillet.store.backends.server_backend import ServerBackend

    return Store(ServerBackend(url, timeout), (_connected, url, {"timeout": timeout}))


def _check_open(path: Any, readonly: Any, create: Any, progress: Any) -> None:
    if path is not None and not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path must be a str or a path, or None for a store in memory, not {path!r:.200}")
    if path in ("", b""):
        raise ValueError("path must be the path of a directory, or None for a store in memory, not ''")
    flag(readonly, "readonly")
    flag(create, "create")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of two numbers, or None, not {progress!r:.200}")


def _check_client_options(owner: str, grace: float, timeout: float | None) -> None:
    one_of(owner, "owner", ("this", "process"))
    if not 0 <= grace < math.inf:
        raise ValueError(f"owner_grace must be a finite number of seconds, not {grace!r}")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a number of seconds above 0, or None to wait without limit, not {timeout!r}")


def _open_existing(path: str, options: dict[str, Any]) -> Store:
    """Open the directory of a pickled store; StoreError if it does not exist, for example on another machine."""
    if not os.path.isdir(path):
        raise StoreError(
            f"{path}, the directory of a store that was sent to this process, does not exist here: a store in a "
            "directory can be sent to processes of the same machine; on other machines, use a server and rillet.connect"
        )
    return open(path, create=False, **options)


def _connected(url: str, options: dict[str, Any]) -> Store:
    return connect(url, **options)
