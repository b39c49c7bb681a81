"""Connections whose opening is interrupted are closed at once."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rillet.client import connection as connection_module
from rillet.client.address import Address
from rillet.client.connection import Connection


def _sockets() -> set[str]:
    """Return the sockets that this process has open, with their numbers."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # of the list of the folder
            place = os.readlink(f"/proc/self/fd/{name}")
            if place.startswith("socket:"):
                found.add(place)
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets closed by their finalizer
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_an_interrupted_opening_leaves_no_socket_while_its_traceback_exists(tmp_path: Path) -> None:
    place = str(tmp_path / "socket")
    address = Address(unix=place)
    kept: list[KeyboardInterrupt] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen(200)
        before = _sockets()
        for at in range(1, 200):
            left = at

            def interrupt(frame: FrameType, event: str, _argument: Any) -> None:
                nonlocal left
                if event in ("call", "c_return") and frame.f_code.co_filename == connection_module.__file__:
                    left -= 1
                    if left == 0:
                        raise KeyboardInterrupt

            sys.setprofile(interrupt)
            try:
                opened = Connection(address, None, 5.0)
            except KeyboardInterrupt as error:
                kept.append(error)
            else:
                sys.setprofile(None)
                opened.close()
                break
            finally:
                sys.setprofile(None)
        assert _sockets() == before
    assert len(kept) > 8
