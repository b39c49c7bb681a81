"""Where a server is and as whom to speak to it: what a url says, and what the options beside it say.

    redis://[user:password@]host[:port][/db]         one server
    rediss://...                                     the same over TLS
    redis+cluster://[user:password@]host[:port],...  a cluster, by one or more of its nodes; the others are discovered
    rediss+cluster://...                             the same over TLS
    unix://[user:password@]/path[?db=n]              a socket of this machine

User and password may stand in the url or in the options of these names; where both are given they must say the same.
TLS checks the server's certificate and its host name against the system's authorities, or those of `caFile`.

`complaints` says everything that is wrong with a url and what belongs to it, as one of the checks of `options.parse`.
No text made here holds a url, because a url may hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rillet.errors import RilletError

if TYPE_CHECKING:
    from rillet.spark.options import Options

PORT = 6379
FORMS = (
    "url is neither redis://[user:password@]host[:port][/db] (rediss:// for TLS) nor redis+cluster://host[:port],... "
    "(rediss+cluster:// for TLS) nor unix:///path[?db=n]"
)
_TLS_OPTIONS = ("caFile", "certFile", "keyFile", "tlsVerify")


class AddressError(RilletError):
    """A url names no server; the text never holds the url."""


class NodeAddress(NamedTuple):
    """Where one server of a cluster listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Tls:
    """How to check the server's certificate, and what to show of one's own."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True)
class Address:
    """Where a server listens, and as whom to speak to it; with `seeds` it is a cluster, known by these nodes."""

    host: str = "127.0.0.1"
    port: int = PORT
    unix: str | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    seeds: tuple[NodeAddress, ...] = ()

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a url; AddressError where it is none."""
        try:
            return _read(url)
        except ValueError as error:  # also: the port or the database is no number
            told = str(error)
            raise AddressError("rillet: " + (told if told.startswith("url") else FORMS)) from None

    @classmethod
    def of(cls, options: Options) -> Address:
        """Return the address of checked options that have a url."""
        found = cls.parse(str(options.url))
        if found.tls is not None:
            tls = Tls(options.ca_file, options.cert_file, options.key_file, options.tls_verify)
            found = replace(found, tls=tls)
        return replace(found, user=options.user or found.user, password=options.password or found.password)

    def at(self, node: NodeAddress) -> Address:
        """Return the address of one node of this cluster or of one replica, to be spoken to as the same user."""
        return replace(self, host=node.host, port=node.port, unix=None)

    def __str__(self) -> str:
        """Return the address for messages: without the password."""
        place = self.unix if self.unix is not None else f"{self.host}:{self.port}"
        return f"{place} (database {self.db})" if self.db else place


def _read(url: str) -> Address:
    """Read a url; ValueError, of which a text that begins with `url` is for the user."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query, keep_blank_values=True)
    if set(asked) - {"db"}:
        raise ValueError(f"url has an unknown parameter: {', '.join(sorted(set(asked) - {'db'}))} (there is ?db=n)")
    userinfo, _, hosts = parts.netloc.rpartition("@")
    name, _, secret = userinfo.partition(":")
    user, password = unquote(name) or None, unquote(secret) or None
    in_query = asked.get("db", ["0"])[0]
    if parts.scheme == "unix" and parts.path:
        return Address(unix=unquote(parts.path), db=_database(in_query), user=user, password=password)
    kind, _, cluster = parts.scheme.partition("+")
    if kind not in ("redis", "rediss") or cluster not in ("", "cluster"):
        raise ValueError(FORMS)
    db = _database(parts.path.strip("/") or in_query)
    nodes = tuple(_node(host) for host in hosts.split(","))
    if cluster and db:
        raise ValueError(f"url asks for database {db}: a cluster has only database 0")
    if not cluster and len(nodes) > 1:
        raise ValueError("url names several hosts, which is for redis+cluster:// and rediss+cluster:// only")
    tls = Tls() if kind == "rediss" else None
    return Address(*nodes[0], db=db, user=user, password=password, tls=tls, seeds=nodes if cluster else ())


def _node(text: str) -> NodeAddress:
    parts: SplitResult = urlsplit("//" + text)
    if not parts.hostname:
        raise ValueError(FORMS)
    return NodeAddress(parts.hostname, PORT if parts.port is None else parts.port)


def _database(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(FORMS)
    return int(text)


def complaints(values: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the url among options (names in lower case) and with the options that belong to it."""
    if "url" not in values:
        return []
    try:
        found = Address.parse(values["url"])
    except AddressError as error:
        return [str(error).removeprefix("rillet: ")]
    wrong = []
    for name, told in (("user", found.user), ("password", found.password)):
        if told is not None and values.get(name, told) != told:
            wrong.append(f"url and option {name} say different things")
    if found.tls is None:
        needless = [name for name in _TLS_OPTIONS if name.lower() in values]
        if needless:
            wrong.append(f"{', '.join(needless)}: only for TLS, with rediss:// or rediss+cluster://")
    elif values.get("tlsverify", "").lower() == "false" and "cafile" in values:
        wrong.append("tlsVerify false leaves nothing for caFile to check")
    return wrong
