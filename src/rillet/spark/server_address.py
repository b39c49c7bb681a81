"""The server that options name: by a url with related options, or by the directory of an embedded store.

The url or the options `user` and `password` contain user and password; if both contain them, they must be equal.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rillet.client.address import Address
from rillet.client.errors import AddressError, ConnectionLost, ConnectorError
from rillet.errors import StoreError

if TYPE_CHECKING:
    from rillet.store.store import Store

_TLS_OPTIONS = ("caFile", "certFile", "keyFile", "tlsVerify")
_GRACE = 2.0  # seconds: between the steps of a job no worker may be there
_stores: dict[str, Store] = {}  # by path: stores that stay open until this process ends


def url_problems(values: Mapping[str, str]) -> list[str]:
    """Return error messages for the url and its related options; `values`: option texts by lower-case name."""
    if "url" not in values:
        return []
    try:
        address = Address.parse(values["url"])
    except AddressError as error:
        return [str(error).removeprefix("rillet: ")]
    problems = [
        f"the url and the option {name} differ"
        for name, value in (("user", address.user), ("password", address.password))
        if value is not None and values.get(name, value) != value
    ]
    if address.tls is None:
        needless = [name for name in _TLS_OPTIONS if name.lower() in values]
        if needless:
            problems.append(f"{', '.join(needless)}: only for TLS, with rediss:// or rediss+cluster://")
    elif values.get("tlsverify", "").lower() == "false" and "cafile" in values:
        problems.append("caFile has no effect with tlsVerify false")
    return problems


def owner_address(path: str, known: str | None = None) -> Address:
    """Return the Unix socket of the process that owns a store; without an owner, start an owner process.

    known: the socket of its last known owner, which is used if it answers. A task then imports nothing of the store.

    Spark ends its workers with signals and os._exit, so a worker could not close a store that it owns. An owner process
    closes it when the last worker has ended.
    """
    if known is not None and path not in _stores and is_listening(known):
        return Address(unix=known)
    import rillet

    if path not in _stores:
        _stores[path] = rillet.open(path, owner="process", owner_grace=_GRACE)
    try:
        _stores[path].execute("PING")
    except StoreError:  # the former owner has ended: attach to the next one, or start it
        _stores[path].execute("PING")
    address = _stores[path].socket
    if address is None:
        raise ConnectionLost(f"rillet: the owner of the store {path} does not listen on a socket")
    return Address(unix=address)


def is_listening(path: str) -> bool:
    """Return whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def require_store(given: str | None) -> None:
    """Raise ConnectorError if the option `path` names no store: opening it would create an empty one."""
    if given is None:
        return
    path = os.path.expanduser(given)
    if not os.path.isdir(path):
        raise ConnectorError(f"rillet: there is no store at {given}")
    from rillet.host.directory import Directory

    try:
        Directory(path, create=False)
    except StoreError as error:
        raise ConnectorError(f"rillet: {error}") from error
