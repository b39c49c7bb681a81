"""The webhook application as a process: real HTTP, live events, and a kill between two deliveries."""

from __future__ import annotations

import hmac
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from tests.examples.processes import LIMIT, kill, start
from tests.judge import free_port
from tests.waiting import until

pytest.importorskip("uvicorn")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL"),
]


@contextmanager
def running(path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    monkeypatch.setenv("WEBHOOK_SECRET", "secret")
    process = start("webhooks/app.py", "--port", port, "--path", path)
    try:
        until(lambda: process.poll() is not None or listens(port))
        yield process
    finally:
        if process.returncode is None:
            kill(process)


def listens(port: int) -> bool:
    try:
        return get(port, "/status")[0] == 200
    except OSError:
        return False


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def send(port: int, body: str, delivery: str) -> tuple[int, str]:
    signature = hmac.new(b"secret", body.encode(), sha256).hexdigest()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as connection:
        connection.request("POST", "/hooks/shop", body, {"x-signature": signature, "x-delivery": delivery})
        response = connection.getresponse()
        return response.status, json.loads(response.read())["id"]


def test_hooks_survive_a_kill_and_events_are_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with running(tmp_path / "store", port, monkeypatch) as process:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        connection.request("GET", "/events")
        live = connection.getresponse()
        assert live.readline() == b": connected\n"
        status, first = send(port, "one", "d-1")
        assert status == 202
        assert [live.readline() for _ in range(3)] == [
            b"\n", f"id: {first}\n".encode(), b'data: {"source": "shop", "body": "one"}\n'
        ]  # fmt: skip
        connection.close()
        live.close()
        kill(process)
    with running(tmp_path / "store", port, monkeypatch) as process:
        assert send(port, "one", "d-1") == (202, first)  # the sender repeats it
        _, second = send(port, "two", "d-2")
        assert get(port, f"/events?after={first}&count=1")[1].startswith(f": connected\n\nid: {second}\n")
        until(lambda: json.loads(get(port, "/status")[1]) == {"hooks": 2, "pending": 0, "dead": 0})
        process.terminate()
        said, _ = process.communicate(timeout=LIMIT)
        assert process.returncode in (0, -15), said
        assert f"{second} from shop: two" in said


def test_the_secret_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBHOOK_SECRET", raising=False)
    said, _ = start("webhooks/app.py", "--path", tmp_path / "store").communicate(timeout=LIMIT)
    assert "WEBHOOK_SECRET" in said
    assert os.path.isdir(tmp_path / "store") is False
