"""The master of a service that Sentinels watch: where it is now.

    SENTINEL GET-MASTER-ADDR-BY-NAME <service>      to each sentinel in turn, until one answers with an address
    ROLE                                            to that server: it must be a master

A sentinel that has not noticed a failover yet names the old master, which is a replica by then, or does not answer. So
its answer counts only if the server says that it is a master; else the next sentinel is asked.

The master is looked up whenever a connection is opened. After a failover the sentinels disconnect the clients of the
old master, whose next call opens a connection. Rejected alternative: to subscribe to the sentinels' `+switch-master`,
which needs a connection and a thread for each store, and brings the same answer earlier by less than a second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rillet.client.address import Address, NodeAddress
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError

_PATIENCE = 1.0  # seconds for each answer


def current_master(address: Address) -> Address:
    """Return the address of the master of a service now; ConnectionLost if no sentinel knows a reachable one."""
    watched = address.sentinels
    assert watched is not None
    problems: list[str] = []
    for node in watched.nodes:
        try:
            found = _named_by(address, node)
            if found is None:
                problems.append(f"{node.host}:{node.port} does not know the service")
                continue
            master = replace(address, host=found.host, port=found.port, sentinels=None)
            if _is_master(master):
                return master
            problems.append(f"{node.host}:{node.port} names {master}, which is a replica")
        except ConnectorError as error:
            problems.append(str(error).removeprefix("rillet: "))
    raise ConnectionLost.before(f"rillet: no sentinel knows a master of {watched.service!r}: {'; '.join(problems)}")


def _named_by(address: Address, node: NodeAddress) -> NodeAddress | None:
    """Return the master that a sentinel names, or None if it does not know the service."""
    watched = address.sentinels
    assert watched is not None
    sentinel = replace(address, host=node.host, port=node.port, db=0, user=watched.user, password=watched.password,
                       sentinels=None, protocol=2)  # fmt: skip
    with Connection(sentinel, _PATIENCE) as connection:
        reply: Any = connection.call(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", watched.service.encode())
    return None if reply is None else NodeAddress(reply[0].decode(), int(reply[1]))


def _is_master(address: Address) -> bool:
    """Return whether a server says that it is a master; one whose ACL forbids the question is taken for one."""
    with Connection(replace(address, db=0, protocol=2), _PATIENCE) as connection:
        try:
            return bool(connection.call(b"ROLE")[0] == b"master")
        except ConnectionLost:
            raise
        except ConnectorError as error:
            return error.line.startswith("NOPERM")
