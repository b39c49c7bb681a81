"""`rillet top`, in textual's driver for tests; and `rillet inspect` as a process."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from pathlib import Path

import httpx
import pytest
from textual.widgets import DataTable, Static

import rillet
from rillet.inspector import scanning
from rillet.inspector.place import InspectedPlace
from rillet.inspector.top import Top
from tests.forked import Forked, ended
from tests.inspector.conftest import fill
from tests.judge import free_port


def rows(app: Top) -> list[list[str]]:
    table = app.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def test_streams_and_groups_in_the_terminal(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
        store.stream("[bold]\x1b[2J").add({"f": "v"})

        async def look() -> None:
            place = InspectedPlace(store.path or "")
            app = Top(place)
            async with app.run_test(size=(140, 30)) as pilot:
                while len(rows(app)) < 3:
                    await pilot.pause(0.1)
                    app.refresh_figures()
                first = rows(app)[0]
                assert (first[0], first[1], first[4], first[5], first[6]) == ("orders", "248", "1", "223", "25")
                assert "[bold]\\x1b[2J" in {row[0] for row in rows(app)}
                await pilot.press("enter")
                await pilot.pause()
                assert app.opened == "orders"
                names = [row[0] for row in rows(app)]
                assert names == ["billing", "  stuck", "  busy"]
                assert rows(app)[0][1] == "223"
                await pilot.press("escape")
                await pilot.press("s", "s", "s")
                await pilot.pause()
                assert rows(app)[0][0].startswith("[bold]")
                await pilot.press("q")
            place.close()

        asyncio.run(look())


def test_names_of_any_length_in_the_terminal(tmp_path: Path) -> None:
    """A long name leaves the figures in sight, and is whole below the table; an empty one can be opened."""
    long = "tenant:42:" + "long-name-" * 299
    with rillet.open(tmp_path / "s.rillet") as store:
        for name, length in (("", 3), (long, 2), ("\u6f22" * 40, 1)):
            store.stream(name).add_many([{"n": n} for n in range(length)])
            store.execute("XGROUP", "CREATE", name, name, "0")
            store.execute("XREADGROUP", "GROUP", name, name, "STREAMS", name, ">")

        async def look() -> None:
            place = InspectedPlace(store.path or "")
            app = Top(place)
            async with app.run_test(size=(110, 30)) as pilot:

                async def shown(count: int) -> list[list[str]]:
                    while len(rows(app)) < count or "…" in [cell for row in rows(app) for cell in row]:
                        await pilot.pause(0.1)
                        app.refresh_figures()
                    return rows(app)

                found = await shown(3)
                assert [row[:2] for row in found] == [
                    ["(empty name)", "3"], ["tenant:42:long-name-lo…g-name-", "2"],
                    ["漢漢漢漢漢漢漢漢漢漢漢…漢漢漢", "1"],
                ]  # fmt: skip
                table = app.query_one(DataTable)
                assert sum(column.get_render_width(table) for column in table.columns.values()) <= 110
                name = app.query_one("#name", Static)
                assert str(name.render()) == ""
                await pilot.press("down")
                await pilot.pause()
                assert str(name.render()) == long
                # The cursor stays at the stream when the order changes.
                await pilot.press("s", "s", "s")
                await pilot.pause()
                assert rows(app)[table.cursor_row][0].startswith("tenant:42:")
                table.move_cursor(row=0)
                await pilot.press("enter")
                await pilot.pause()
                assert app.opened == ""
                assert [row[0] for row in await shown(2)] == ["(empty name)", "  (empty name)"]
                await pilot.press("escape")
            place.close()

        asyncio.run(look())


def test_the_search_for_streams_in_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many keys were searched, and lists a stream when it is found."""
    monkeypatch.setattr(scanning, "STEP_OF_TYPE", 1)
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("MSET", *(word for n in range(500) for word in (f"key:{n}", n)))
        store.stream("s").add({"f": "v"})

        async def look() -> None:
            place = InspectedPlace(store.path or "")
            app = Top(place)
            async with app.run_test(size=(140, 30)) as pilot:
                seen = set()
                while not app.sampler.has_streams():
                    seen.add(str(app.query_one("#status", Static).render()))
                    await pilot.pause(0.05)
                assert any(re.match(r"searching for streams: \d+ of 501 keys; ", one) for one in seen)
                app.refresh_figures()
                assert str(app.query_one("#status", Static).render()).startswith("501 keys, ")
                assert rows(app)[0][:2] == ["s", "1"]
            place.close()

        asyncio.run(look())


def test_the_numbers_are_those_of_the_page(tmp_path: Path) -> None:
    from rillet.inspector.stats_texts import stream_cells
    from tests.inspector.conftest import inspecting

    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
        with inspecting(store.path or "") as client:
            found = client.get("groups", key="orders")
            assert stream_cells({**found, "rate": None})[5] == f"{found['groups'][0]['lag']:,}"


def test_inspect_as_a_process(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
    process = Forked(["inspect", tmp_path / "s.rillet", "--port", "0"])
    try:
        assert process.stdout is not None
        assert "read-only" in process.stdout.readline()
        found = re.search(r"(https?://127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None
        base, token = found.groups()
        headers = {"authorization": f"Bearer {token}"}
        answer = httpx.get(f"{base}/api/stream", params={"key": "orders"}, headers=headers, trust_env=False, timeout=60)
        assert answer.json()["length"] == 248
        assert httpx.get(f"{base}/api/stream", trust_env=False).status_code == 401
        # A page that is open does not delay the end.
        with httpx.stream("GET", f"{base}/api/feed", headers=headers, trust_env=False, timeout=60) as feed:
            assert next(feed.iter_lines()) == "retry: 2000"
            process.send_signal(signal.SIGINT)
            _, problem = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, problem) == (0, "")


def test_inspect_several_places_as_a_process(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with rillet.open(tmp_path / name) as store:
            store.stream(name).add({"n": 1})
    process = Forked(["inspect", tmp_path / "a", tmp_path / "b", "--port", "0"])
    try:
        assert process.stdout is not None
        for name in ("a", "b"):
            assert process.stdout.readline().startswith(f"rillet: inspecting {tmp_path / name} (rillet ")
        found = re.search(r"(https?://127\.0\.0\.1:\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None
        base, token = found.groups()
        headers = {"authorization": f"Bearer {token}"}
        # The open page of the second place does not delay the end either.
        where = f"{base}/api/feed?place=1"
        with httpx.stream("GET", where, headers=headers, trust_env=False, timeout=60) as feed:
            assert next(feed.iter_lines()) == "retry: 2000"
            process.send_signal(signal.SIGINT)
            _, problem = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, problem) == (0, "")
    status, _, errors = ended("inspect", tmp_path / "a", tmp_path / "missing")
    assert status == 2
    assert str(tmp_path / "missing") in errors


@pytest.mark.parametrize("name", ["inspect", "top"])
def test_a_place_that_does_not_exist(tmp_path: Path, name: str) -> None:
    status, _, errors = ended(name, tmp_path / "missing")
    assert status == 2
    assert "does not exist" in errors
    assert "Traceback" not in errors


def told_by(server: Forked) -> tuple[str, str]:
    """Return the address and the token that the inspector of a server prints; the password is in no line."""
    assert server.stdout is not None
    told = ""
    while "open http" not in told:
        told = server.stdout.readline()
        assert told, server.stderr.read() if server.stderr else ""
        assert "p@ss" not in told
    found = re.search(r"(https?://127\.0\.0\.1:\d+)/\?token=(\S+)", told)
    assert found is not None
    return found[1], found[2]


@pytest.mark.parametrize("end", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_the_page_of_a_server(tmp_path: Path, end: int) -> None:
    serving = ("serve", "--port", free_port(), "--dir", tmp_path, "--requirepass", "p@ss:/", "--inspect-port", 0)
    with Forked(serving) as server:
        assert server.stdout is not None
        base, token = told_by(server)
        with httpx.Client(base_url=base, headers={"authorization": f"Bearer {token}"}, trust_env=False) as client:
            facts = client.get("/api/place", timeout=60).json()
            assert facts["server"].startswith("rillet")
            assert "p@ss" not in facts["name"]
            assert facts["write"] is False
        server.send_signal(end)
        server.wait(timeout=60)
        # The pipe ends when the inspector, which has it too, has ended.
        server.stdout.read()


@pytest.mark.long
def test_the_page_of_a_server_with_tls_only(tmp_path: Path) -> None:
    """Also from another inspector, with the url's TLS and user."""
    from tests.authority import make_authority
    from tests.inspector.conftest import inspecting

    authority = make_authority(tmp_path)
    port = free_port()
    serving = (
        "serve", "--port", 0, "--tls-port", port, "--dir", tmp_path, "--requirepass", "p@ss:/", "--inspect-port", 0,
        "--tls-cert-file", authority.path("server.crt"), "--tls-key-file", authority.path("server.key"),
        "--tls-ca-cert-file", authority.path("ca.crt"),
    )  # fmt: skip
    with Forked(serving) as server:
        try:
            base, token = told_by(server)
            headers = {"authorization": f"Bearer {token}"}
            # The page has the server's certificate, whose name is localhost.
            base = base.replace("127.0.0.1", "localhost")
            assert base.startswith("https://")
            trusted = ssl.create_default_context(cafile=authority.path("ca.crt"))
            with httpx.Client(base_url=base, verify=trusted, trust_env=False, timeout=60) as page:
                assert page.get("/api/place", headers=headers).json()["server"].startswith("rillet")
                assert "; Secure" in page.get("/", params={"token": token}).headers["set-cookie"]
                assert page.get("/api/place", headers=headers | {"host": "example.org"}).status_code == 421
            files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
            query = "&".join(f"{name}={authority.path(file)}" for name, file in files.items())
            with inspecting(f"rediss://default:p%40ss%3A%2F@localhost:{port}?{query}") as client:
                assert client.get("place")["server"].startswith("rillet")
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    with rillet.open(tmp_path / "s.rillet"):
        for file, problem in (("missing", "No such file or directory"), ("text", "cannot be used as the certificate")):
            words = ("inspect", tmp_path / "s.rillet", "--port", 0, "--tls-cert-file", tmp_path / file)
            status, _, errors = ended(*words)
            assert (status, problem in errors, "Traceback" in errors) == (2, True, False)


def test_a_wrong_port_of_the_page() -> None:
    status, _, errors = ended("serve", "--port", "0", "--inspect-port", "x")
    assert (status, errors) == (1, "rillet: --inspect-port needs the number of a port, not 'x'\n")
