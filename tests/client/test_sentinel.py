"""The url of a service that Sentinels watch, and the search for its master."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rillet.client.address import Address, NodeAddress, Sentinels
from rillet.client.errors import AddressError, ConnectionLost
from rillet.client.sentinel import current_master
from tests.judge import free_port, running_redis


def test_the_url_names_the_sentinels_and_the_service() -> None:
    address = Address.parse("redis+sentinel://me:secret@a:1,b/orders/3")
    assert address.sentinels == Sentinels("orders", (NodeAddress("a", 1), NodeAddress("b", 26379)))
    assert (address.user, address.password, address.db, address.tls) == ("me", "secret", 3, None)
    assert str(address) == "the master of 'orders' (sentinels a:1,b:26379) (database 3)"
    address = Address.parse("rediss+sentinel://a/orders?sentinel_user=u&sentinel_password=p&ssl_cert_reqs=none&db=2")
    assert address.sentinels == Sentinels("orders", (NodeAddress("a", 26379),), "u", "p")
    assert address.db == 2
    assert address.tls is not None
    assert not address.tls.verify
    assert "secret" not in repr(Address.parse("redis+sentinel://:secret@a/b?sentinel_password=secret"))
    for url, reason in (("redis+sentinel://a", "names no service"), ("redis+sentinel:///x", "url names no host"),
                        ("redis+sentinel://a/x/y", "has the database 'y'"),
                        ("redis+sentinel://a/x?y=1", "unknown parameter"),
                        ("redis+other://a/x", "url is neither")):  # fmt: skip
        with pytest.raises(AddressError, match=reason):
            Address.parse(url)


@contextmanager
def sentinel_that_says(reply: bytes) -> Iterator[int]:
    """Answer every command of each connection with the same reply."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    while client.recv(4096):
                        client.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def names(port: int) -> bytes:
    return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)


def test_the_first_sentinel_that_names_a_master_decides() -> None:
    with (
        running_redis() as master, running_redis("--replicaof", f"127.0.0.1 {master.port}") as replica,
        sentinel_that_says(names(replica.port)) as late, sentinel_that_says(b"*-1\r\n") as other,
        sentinel_that_says(names(master.port)) as right,
    ):  # fmt: skip
        dead = free_port()
        places = ",".join(f"127.0.0.1:{port}" for port in (dead, other, late, right))
        found = current_master(Address.parse(f"redis+sentinel://{places}/orders/1"))
        assert (found.port, found.db, found.sentinels) == (master.port, 1, None)
        places = ",".join(f"127.0.0.1:{port}" for port in (dead, other, late))
        with pytest.raises(ConnectionLost, match="no sentinel knows a master of 'orders'") as error:
            current_master(Address.parse(f"redis+sentinel://{places}/orders"))
        assert "does not know the service" in str(error.value)
        assert "which is a replica" in str(error.value)
        assert not error.value.sent
