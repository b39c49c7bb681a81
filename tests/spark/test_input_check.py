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


def test_what_is_there_or_was_read_ahead_is_no_end(ends: tuple[socket.socket, Any]) -> None:
    ours, infile = ends
    ours.sendall(b"four")
    assert not cut_off(infile)
    ours.close()
    assert not cut_off(infile)
    assert infile.read(1) == b"f" and not cut_off(infile)
    assert infile.read(3) == b"our" and cut_off(infile)


def test_an_open_socket_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, os.fdopen(os.dup(theirs.fileno()), "rb") as infile:
        assert not cut_off(infile)
        ours.shutdown(socket.SHUT_WR)  # what Spark does where making the rows fails
        assert cut_off(infile)


def test_a_connection_that_was_reset_is_at_its_end() -> None:
    ours, theirs = socket.socketpair()
    with theirs, os.fdopen(os.dup(theirs.fileno()), "rb") as infile:
        theirs.sendall(b"never read")
        ours.close()
        assert cut_off(infile)


def test_the_file_is_found_where_spark_called_and_nowhere_else() -> None:
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
