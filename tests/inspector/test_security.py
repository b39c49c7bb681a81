"""The guard: token, Host, Origin, other sites, and the policy; hostile names and values through the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rillet
from rillet.inspector.layout.listpack import lay_out
from rillet.inspector.security import HEADER, MOST_BODY
from rillet.structs.listpack import Listpack
from tests.inspector.conftest import Client, Open, fill, inspecting

HOSTILE = {
    "html": b"<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>",
    "control": b"\x00\x1b[2J\x07\r\n\x7f",
    "bidi": "\u202etxt.exe\u2066".encode(),
    "invalid": bytes(range(128, 256)),
    "quotes": b"\"'`${window.harmed = 1}\\",
    "json": b'{"a": ' * 500 + b"1" + b"}" * 500,
    "large": b"x" * 10_000_000,
}


def hostile(store: rillet.Store) -> None:
    """Add streams whose names, fields, values, groups and consumers are hostile."""
    for name, value in HOSTILE.items():
        key = value[:40]
        store.execute("XADD", key, "1795000000000-0", value[:100], value, "plain", "x")
        store.execute("XGROUP", "CREATE", key, value[:60], "0")
        store.execute("XREADGROUP", "GROUP", value[:60], value[:50], "STREAMS", key, ">")
        store.execute("SET", b"key of " + name.encode() + value[:30], value[:1000])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("secure") / "s.rillet"
    with rillet.open(path) as store:
        fill(store)
        with inspecting(path, write=True) as found:
            yield found


def bare(client: Client, path: str = "/api/place", **options: Any) -> httpx.Response:
    """Send a request without the token, unless the options have it."""
    method = options.pop("method", "GET")
    return httpx.request(method, client.inspector.base + path, trust_env=False, timeout=30, **options)


def test_a_request_without_the_token_is_refused(client: Client) -> None:
    for path in ("/", "/api/place", "/api/feed", "/api/export?key=orders", "/static/app.css", "/api/openapi.json"):
        assert bare(client, path).status_code == 401
    assert bare(client, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert bare(client, "/api/place?token=wrong").status_code == 401
    assert bare(client, headers={"cookie": f"rillet-inspect-{client.inspector.port}=wrong"}).status_code == 401


def test_the_token_becomes_a_cookie(client: Client) -> None:
    answer = bare(client, f"/?token={client.inspector.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    page = bare(client, "/", headers={"cookie": cookie.split(";")[0]})
    assert page.status_code == 200
    assert "rillet inspector" in page.text


def test_another_host_is_refused(client: Client) -> None:
    token = {"authorization": f"Bearer {client.inspector.token}"}
    port = client.inspector.port
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1",
                 f"127.0.0.1:{port + 1}"):  # fmt: skip
        assert bare(client, headers={**token, "host": host}).status_code == 421
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert bare(client, headers={**token, "host": host}).status_code == 200


def test_another_origin_is_refused(client: Client) -> None:
    token = {"authorization": f"Bearer {client.inspector.token}"}
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"},
                    {"origin": f"http://127.0.0.1:{client.inspector.port + 1}"}, {"sec-fetch-site": "cross-site"},
                    {"sec-fetch-site": "same-site"}):  # fmt: skip
        assert bare(client, headers={**token, **headers}).status_code == 403
    assert bare(client, headers={**token, "origin": client.inspector.base}).status_code == 200
    # A link on another site may open the first page, with the token in its url only.
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert bare(client, f"/?token={client.inspector.token}", headers=headers).status_code == 303
    assert bare(client, f"/api/place?token={client.inspector.token}", headers=headers).status_code == 403


def test_a_form_of_another_site_cannot_act(client: Client) -> None:
    token = {"authorization": f"Bearer {client.inspector.token}"}
    body = json.dumps({"line": "XLEN orders"})
    kind = "content-type"
    for headers in ({}, {HEADER: "1"}, {kind: "application/json"}, {HEADER: "1", kind: "text/plain"}):
        answer = bare(client, "/api/console", method="POST", content=body, headers={**token, **headers})
        assert answer.status_code == 403
    headers = {**token, HEADER: "1", "content-type": "application/json"}
    assert bare(client, "/api/console", method="POST", content=body, headers=headers).status_code == 200
    large = b" " * (MOST_BODY + 1)
    assert bare(client, "/api/console", method="POST", content=large, headers=headers).status_code == 413
    assert bare(client, "/api/console", method="POST", content=b"[]", headers=headers).status_code == 400
    assert bare(client, "/api/console", method="POST", content=b"{", headers=headers).status_code == 400
    assert bare(client, "/api/console", headers=token).status_code == 405


def test_the_headers_of_each_answer(client: Client) -> None:
    for path in ("/", "/api/place", "/static/app.css", "/missing"):
        answer = client.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert client.http.get("/api/place").headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in client.http.get("/api/place", headers={
        "origin": client.inspector.base}).headers  # fmt: skip


def test_files_outside_of_the_pages_are_not_served(client: Client) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/vendor/../../place.py"):
        assert client.http.get(path).status_code in (404, 405)


def test_the_pages_load_nothing_from_another_host() -> None:
    from rillet.inspector.app import STATIC

    for path in Path(str(STATIC)).rglob("*"):
        if path.suffix in (".html", ".css", ".js") and "vendor" not in path.parts:
            text = path.read_text().replace("http://www.w3.org", "")
            assert "http://" not in text
            assert "https://" not in text
            assert "innerHTML" not in text


def test_hostile_names_and_values(tmp_path: Path, inspect: Open) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        hostile(store)
        client = inspect(store.path, write=True)
        names = client.get("streams")["streams"]
        assert len(names) == len(HOSTILE)
        for name in names:
            assert name.isprintable()
            page = client.get("entries", key=name)
            assert len(page["entries"]) == 1
            for field in page["entries"][0]["fields"]:
                assert field[0].isprintable()
                assert field[1].isprintable()
            assert len(json.dumps(page)) < 10_000
            entry = client.get("entry", key=name, id="1795000000000-0")
            assert len(json.dumps(entry)) < 600_000
            (group,) = client.get("groups", key=name)["groups"]
            pending = client.get("pending", key=name, group=group["name"], consumer=group["consumers"][0]["name"])
            assert len(pending["pending"]) == 1
            found = client.get("bytes", key=name)
            assert len(json.dumps(found)) < 600_000
            assert client.http.get("/api/export", params={"key": name, "format": "csv"}).status_code == 200
            request: dict[str, Any] = {
                "action": "claim", "key": name, "group": group["name"], "consumer": "rescue",
                "ids": ["1795000000000-0"],
            }  # fmt: skip
            shown = client.post("preview", **request)
            assert all(line.isprintable() for line in shown["commands"])
            client.post("act", **request, confirm=shown["confirm"])
            assert client.get("pending", key=name, group=group["name"])["pending"][0]["consumer"] == "rescue"
        assert len(client.lines("search/keys", match="*")) >= 2 * len(HOSTILE)
        overview = client.get("overview")
        assert json.dumps(overview).isprintable()


def test_a_formula_does_not_reach_a_spreadsheet(tmp_path: Path, inspect: Open) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.stream("s").add({"f": "=cmd|' /C calc'!A0", "n": "-4.5", "=x": "+1"}, id="1-1")
        client = inspect(store.path)
        text = client.http.get("/api/export", params={"key": "s", "format": "csv"}).text
        assert text.splitlines()[0] == "id,time,f,n,'=x,other_fields"
        assert text.splitlines()[1].startswith("1-1,1970-01-01T00:00:00.001Z,'=cmd")
        assert ",-4.5,+1," in text


def test_damaged_bytes_are_shown_as_bytes() -> None:
    from rillet.inspector.blocks import draw
    from rillet.inspector.layout.payload import Block

    block = Block("listpack", Listpack.from_values([b"a"]).to_bytes()[:-1] + b"\x00", 0)
    found = draw({"type": "hash"}, block)
    assert "listpack" in found["facts"]["problem"]
    assert "".join(span["hex"] for span in found["spans"]) == block.data.hex()
    assert lay_out(Listpack().to_bytes()).elements == []


def test_the_vendored_scripts_match_their_lock_file() -> None:
    from tools.vendor_pages import problems

    assert problems() == []
