"""A truncated input is distinguished from a complete one by the end of the socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rillet.client.errors import ConnectorError
from rillet.spark.write.input_check import cut_off, require_all_rows


@pytest.fixture(params=["forked", "alone"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, Any]]:
    """A socket, and the file of its other end as PySpark opens it where a daemon forked the worker, and where not."""
    ours, theirs = socket.socketpair()
    infile: Any = os.fdopen(os.dup(theirs.fileno()), "rb", 4096) if request.param == "forked" else None
    infile = infile or theirs.makefile("rwb", 4096)
    with ours, theirs, infile:
        yield ours, infile


def test_available_or_buffered_data_is_not_the_end(ends: tuple[socket.socket, Any]) -> None:
    ours, infile = ends
    ours.sendall(b"four")
    assert not cut_off(infile)
    ours.close()
    assert not cut_off(infile)
    assert infile.read(1) == b"f"
    assert not cut_off(infile)
    assert infile.read(3) == b"our"
    assert cut_off(infile)


def test_checking_an_open_socket_does_not_wait() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, os.fdopen(os.dup(theirs.fileno()), "rb") as infile:
        assert not cut_off(infile)
        ours.shutdown(socket.SHUT_WR)  # what Spark does where making the rows fails
        assert cut_off(infile)


def test_a_reset_connection_is_at_its_end() -> None:
    ours, theirs = socket.socketpair()
    with theirs, os.fdopen(os.dup(theirs.fileno()), "rb") as infile:
        theirs.sendall(b"never read")
        ours.close()
        assert cut_off(infile)


def test_the_input_file_is_found_only_inside_a_call_by_spark() -> None:
    ours, theirs = socket.socketpair()

    def main(infile: Any) -> None:
        require_all_rows()

    with ours, theirs, os.fdopen(os.dup(theirs.fileno()), "rb") as file:
        main(file)
        ours.close()
        with pytest.raises(ConnectorError, match="the task's input was truncated"):
            main(file)
    require_all_rows()
    main(None)
    with open(os.devnull, "rb") as file:
        main(file)
