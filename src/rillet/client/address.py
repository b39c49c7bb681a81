"""The address of a server: host and port or Unix socket, TLS, credentials, the nodes of a cluster, or the sentinels.

    redis://[user:password@]host[:port][/db]         one server
    rediss://...                                     the same over TLS
    redis+cluster://[user:password@]host[:port],...  a cluster, by one or more of its nodes; the others are discovered
    rediss+cluster://...                             the same over TLS
    redis+sentinel://[user:password@]host[:port],.../service[/db]    the master of a service that Sentinels watch
    rediss+sentinel://...                            the same over TLS, also to the sentinels
    unix://[user:password@]/path[?db=n]              a Unix socket

TLS checks the server's certificate and its host name against the system's authorities. The query of a url may change
these checks with redis-py's names: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs=none. User and password are
for the master; sentinels with a password have sentinel_user and sentinel_password in the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rillet.client.errors import AddressError

PORT = 6379
SENTINEL_PORT = 26379
FORMS = (
    "url is neither redis://[user:password@]host[:port][/db] (rediss:// for TLS) nor redis+cluster://host[:port],... "
    "(rediss+cluster:// for TLS) nor redis+sentinel://host[:port],.../service[/db] nor unix:///path[?db=n]"
)
_TLS_PARAMETERS = {"ssl_ca_certs": "ca_file", "ssl_certfile": "cert_file", "ssl_keyfile": "key_file"}
_CERT_REQS = "ssl_cert_reqs"


class NodeAddress(NamedTuple):
    """The host and port of one node of a cluster."""

    host: str
    port: int


@dataclass(frozen=True)
class Tls:
    """How to verify the server's certificate, and the client certificate to present."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True)
class Sentinels:
    """The name of a service, the sentinels that watch it, and their credentials."""

    service: str
    nodes: tuple[NodeAddress, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Address:
    """The address of a server and the credentials for it. An address with `seeds` is that of a cluster.

    One with `sentinels` has no server: rillet.client.sentinel finds it.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    unix: str | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    seeds: tuple[NodeAddress, ...] = ()
    protocol: int = 2  # the version of RESP: 2 or 3
    sentinels: Sentinels | None = None

    @classmethod
    def parse(cls, url: str, strict: bool = True) -> Address:
        """Return the address of a url; raise AddressError if the url is malformed.

        strict=False accepts `protocol=3` (RESP3), and ignores parameters that are for redis-py only.
        """
        try:
            address = _read(url, strict)
            return address if strict else replace(address, protocol=_protocol(url))
        except ValueError as error:  # int() also raises ValueError if the port or the database is not a number
            reason = str(error)
            raise AddressError("rillet: " + (reason if reason.startswith("url") else FORMS)) from None

    def at(self, node: NodeAddress) -> Address:
        """Return the address of one node or replica, with the same credentials."""
        return replace(self, host=node.host, port=node.port, unix=None)

    @property
    def node(self) -> NodeAddress:
        """The host and port of the server."""
        return NodeAddress(self.host, self.port)

    def __str__(self) -> str:
        """Return the address as messages show it, without the password."""
        place = self.unix if self.unix is not None else f"{self.host}:{self.port}"
        if self.sentinels is not None:
            nodes = ",".join(f"{node.host}:{node.port}" for node in self.sentinels.nodes)
            place = f"the master of {self.sentinels.service!r} (sentinels {nodes})"
        return f"{place} (database {self.db})" if self.db else place


def _read(url: str, strict: bool) -> Address:
    """Return the address of a url; raise ValueError with a text for the user if the url is malformed."""
    parts = urlsplit(url)
    if parts.scheme != "unix" and "@" in parts.path + parts.fragment:
        raise ValueError("url has an @ behind a / or #: in a password, write / as %2F, ? as %3F and # as %23")
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    userinfo, _, hosts = parts.netloc.rpartition("@")
    name, _, secret = userinfo.partition(":")
    user, password = unquote(name) or None, unquote(secret) or None
    kind, _, cluster = parts.scheme.partition("+")
    tls = _tls(query) if kind == "rediss" else None
    db = query.pop("db", "0")
    sentinel = (query.pop("sentinel_user", None), query.pop("sentinel_password", None)) if cluster == "sentinel" else ()
    if query and strict:
        raise ValueError(f"url has an unknown parameter: {', '.join(sorted(query))} (only ?db=n is valid)")
    if parts.scheme == "unix" and parts.path:
        return Address(unix=unquote(parts.path), db=_database(db), user=user, password=password)
    if kind not in ("redis", "rediss") or cluster not in ("", "cluster", "sentinel"):
        raise ValueError(FORMS)
    if not hosts:
        raise ValueError("url names no host: redis://host[:port][/db]")
    if cluster == "sentinel":
        service, _, named = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("url names no service after the sentinels: redis+sentinel://host[:port],.../service[/db]")
        watchers = tuple(_node(host, SENTINEL_PORT) for host in hosts.split(","))
        return Address(db=_database(named or db), user=user, password=password, tls=tls,
                       sentinels=Sentinels(unquote(service), watchers, *sentinel))  # fmt: skip
    number = _database(parts.path.strip("/") or db)
    nodes = tuple(_node(host) for host in hosts.split(","))
    if cluster and number:
        raise ValueError(f"url selects database {number}: a cluster has only database 0")
    if not cluster and len(nodes) > 1:
        raise ValueError("url names several hosts, which is for redis+cluster:// and redis+sentinel:// only")
    return Address(*nodes[0], db=number, user=user, password=password, tls=tls, seeds=nodes if cluster else ())


def _protocol(url: str) -> int:
    return 3 if parse_qs(urlsplit(url).query).get("protocol") == ["3"] else 2


def _tls(query: dict[str, str]) -> Tls:
    """Remove the TLS parameters from a url's query and return them."""
    verify = query.pop(_CERT_REQS, "required")
    if verify not in ("none", "required"):
        raise ValueError(f"url has {_CERT_REQS}={verify}: it must be none or required")
    files = {field: query.pop(name) for name, field in _TLS_PARAMETERS.items() if name in query}
    return Tls(**files, verify=verify == "required")


def _node(text: str, port: int = PORT) -> NodeAddress:
    parts: SplitResult = urlsplit("//" + text)
    if not parts.hostname:
        raise ValueError("url names no host before a port: redis://host[:port][/db]")
    try:
        given = parts.port
    except ValueError:
        raise ValueError(f"url has the port {text.rpartition(':')[2]!r}: it must be a number from 0 to 65535") from None
    return NodeAddress(parts.hostname, port if given is None else given)


def _database(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"url has the database {text!r}: it must be a number")
    return int(text)
