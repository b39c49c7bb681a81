"""Samples of groups: what servers say, into files, into a report and a chart."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet.client.errors import ConnectionLost
from rillet.client.servers import Servers
from rillet.spark.options import OptionError, parse
from rillet.spark.pipelines.cli_arguments import PipelineParser
from rillet.spark.pipelines.lag import add_arguments, chart, history, report
from rillet.spark.pipelines.lag import lag as lag_now
from rillet.spark.pipelines.lag_sampling import Samples, sample, schema, watch
from tests.judge import Judge
from tests.spark.calls import server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the package, the function hides the module of the same name.
MODULE = sys.modules["rillet.spark.pipelines.lag"]
START = 1_700_000_000_000


def fill(client: Any) -> None:
    """Create two streams: one whose group has two consumers and old pending entries, one whose group has neither."""
    client.flushall()
    run = client.execute_command
    for i in range(100):
        run("XADD", "a", f"{START + i}-0", "n", i)
    run("XADD", "b", "5-5", "n", "1")
    run("XGROUP", "CREATE", "a", "g", "0")
    run("XGROUP", "CREATE", "a", "done", "$")
    run("XGROUP", "CREATE", "b", "g", "0")
    run("XREADGROUP", "GROUP", "g", "c1", "COUNT", 40, "STREAMS", "a", ">")
    run("XREADGROUP", "GROUP", "g", "c2", "COUNT", 1, "STREAMS", "a", ">")
    run("XGROUP", "CREATECONSUMER", "a", "g", "never")
    old = [f"{START + i}-0" for i in range(10)]
    run("XCLAIM", "a", "g", "c1", 0, *old, "IDLE", 500_000, "RETRYCOUNT", 9, "JUSTID")


def options(url: str) -> dict[str, str]:
    return {"url": url, "streamPattern": "*"}


def rows_of(url: str, keys: list[bytes], most: int = 1000) -> list[dict[str, Any]]:
    with Servers(parse(options(url))) as servers:
        return sample(servers, keys, most)


@pytest.mark.parametrize("compat", ["7.0", "8.6", "valkey", "newest"])
def test_a_sample_has_the_figures_of_the_server(compat: str, peer_of: Callable[[str], Judge]) -> None:
    server = peer_of(compat)
    with server.client() as client:
        fill(client)
        rows = rows_of(f"redis://127.0.0.1:{server.port}", [b"a", b"b", b"missing"])
    _is_right(rows)


def test_a_sample_of_an_embedded_store(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:

        class Client:
            execute_command = staticmethod(store.execute)
            flushall = staticmethod(lambda: store.execute("FLUSHALL"))

        fill(Client)
        _is_right(rows_of(f"unix://{store.socket}", [b"a", b"b", b"missing"]))


def _is_right(rows: list[dict[str, Any]]) -> None:
    assert [(row["stream"], row["group"]) for row in rows] == [("a", "done"), ("a", "g"), ("b", "g")]
    done, busy, fresh = rows
    assert (done["lag"], done["behind_ms"], done["pending"], done["age_p50_ms"], done["consumers"]) == (
        0,
        0,
        0,
        None,
        [],
    )
    assert (busy["lag"], busy["behind_ms"], busy["pending"], busy["pending_seen"]) == (59, 59, 41, 41)
    assert busy["last_delivered_id"] == f"{START + 40}-0"
    assert busy["last_generated_id"] == f"{START + 99}-0"
    assert (busy["deliveries_max"], busy["redelivered"], busy["entries_read"], busy["length"]) == (9, 10, 41, 100)
    assert busy["age_p50_ms"] < 400_000 < 500_000 <= busy["age_p90_ms"] <= busy["age_p99_ms"] <= busy["age_max_ms"]
    assert abs(busy["sampled"] / 1000 - busy["oldest_ms"] - START) < 1
    consumers = {one["name"]: (one["pending"], one["inactive_ms"] is None) for one in busy["consumers"]}
    assert {name: pending for name, (pending, _) in consumers.items()} == {"c1": 40, "c2": 1, "never": 0}
    assert consumers["never"][1]
    assert (fresh["lag"], fresh["behind_ms"]) == (1, 0)


def test_a_group_that_has_read_nothing_is_behind_the_first_entry_and_not_1970(judge: Judge, url: str) -> None:
    with judge.client() as client:
        fill(client)
        client.execute_command("XGROUP", "CREATE", "a", "new", "0")
        client.execute_command("XTRIM", "a", "MINID", "=", f"{START + 70}-0")
    (row,) = (row for row in rows_of(url, [b"a"]) if row["group"] == "new")
    assert (row["lag"], row["behind_ms"]) == (30, 29)
    (row,) = (row for row in rows_of(url, [b"a"]) if row["group"] == "g")  # trimmed entries no longer count
    assert row["behind_ms"] == 29


@pytest.mark.parametrize("kind", ["7.0", "rillet"])
def test_a_lag_that_the_server_cannot_count_has_bounds(kind: str, tmp_path: Path) -> None:
    """A deletion in the middle takes the server's count away; a rillet server ranks the IDs."""
    with server(kind, tmp_path) as url, Servers(parse({"url": url, "stream": "a"})) as servers:
        for n in range(1, 101):
            servers.call(b"a", b"XADD", b"a", b"%d-0" % n, b"n", b"1")
        servers.call(b"a", b"XGROUP", b"CREATE", b"a", b"g", b"40-0")
        servers.call(b"a", b"XDEL", b"a", b"70-0")
        (row,) = sample(servers, [b"a"])
        assert row["lag_least"] <= 59 <= row["lag_most"] <= 98
        assert (row["lag"] == 59) == (kind == "rillet")
        servers.call(b"a", b"XGROUP", b"SETID", b"a", b"g", b"100-0")
        (row,) = sample(servers, [b"a"])
        assert (row["lag"], row["lag_least"], row["lag_most"]) == (0, 0, 0)


def test_a_sample_reads_at_most_most_pending_entries(judge: Judge, url: str) -> None:
    with judge.client() as client:
        fill(client)
    for most in (7, 10, 41):
        (_, busy) = rows_of(url, [b"a"], most)
        assert busy["pending_seen"] == most
        assert busy["pending"] == 41
    assert rows_of(url, [b"a"], 7)[1]["age_p50_ms"] >= 500_000  # the entries with the lowest IDs


def test_a_lag_in_time_beyond_a_long_is_capped(judge: Judge, url: str) -> None:
    import pyarrow as pa

    with judge.client() as client:
        client.execute_command("XADD", "far", "0-1", "n", "1")
        client.execute_command("XADD", "far", f"{2**64 - 1}-1", "n", "1")
        client.execute_command("XGROUP", "CREATE", "far", "g", "0")
    table = pa.Table.from_pylist(rows_of(url, [b"far"]), schema())
    assert table.column("behind_ms").to_pylist() == [2**63 - 1]


def test_sampling_continues_after_an_outage_and_writes_files(
    judge: Judge, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    with judge.client() as client:
        fill(client)
    take, calls = sample, 0

    def with_outage(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionLost("rillet: the connection was lost")
        return take(*given)

    monkeypatch.setattr("rillet.spark.pipelines.lag_sampling.sample", with_outage)
    into = Samples(tmp_path, flush=0.0)
    taken, missed, last = watch(parse(options(url)), 0.01, 0.05, into, threading.Event())
    assert (taken, missed, len(last)) == (4, 1, 3)
    assert into.files >= 1
    assert "a sample failed, sampling continues: the connection was lost" in capsys.readouterr().err
    files = sorted(tmp_path.glob("date=*/lag-*.parquet"))
    assert len(files) == into.files
    assert not list(tmp_path.glob("date=*/.*"))
    tables = [pq.ParquetFile(file).read() for file in files]
    assert sum(table.num_rows for table in tables) == 12
    assert tables[0].schema.equals(schema())
    with pytest.raises(ConnectionLost):  # the first sample failed: a wrong address, not an outage
        watch(parse(options("redis://127.0.0.1:1")), 0.01, 1, None, threading.Event())


@pytest.mark.slow
def test_the_command_samples_until_it_is_interrupted(judge: Judge, url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with judge.client() as client:
        fill(client)
    command = [sys.executable, "-m", "rillet.cli", "pipeline", "lag", "--url", url]
    if not (Path(rillet.__file__).parent / "cli" / "__main__.py").exists():
        # A background job of a shell ignores SIGINT, and its children inherit that.
        ready = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
        command[1:3] = ["-c", f"{ready}; from rillet.cli import main; sys.exit(main())"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert lines[0].split()[:4] == ["stream", "group", "lag", "behind"]
    assert lines[1].split()[:3] == ["a", "g", "59"]
    assert lines[-1] == "1 sample, 3 groups of 2 streams"
    sampling = subprocess.Popen(
        [*command, "--every", "20ms", "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with judge.client() as client:
            before = xinfo_calls(client)
            while xinfo_calls(client) < before + 4:
                assert sampling.poll() is None
        sampling.send_signal(signal.SIGINT)
        out, errors = sampling.communicate(timeout=60)
    finally:
        sampling.kill()
    assert sampling.returncode == 0, errors
    assert out.splitlines()[-1].endswith(f"1 file in {tmp_path}"), errors
    assert len(list(tmp_path.glob("date=*/*.parquet"))) == 1


def xinfo_calls(client: Any) -> int:
    """Return the number of XINFO GROUPS calls of the server."""
    lines = client.execute_command("INFO", "commandstats").decode().splitlines()
    found = [line.split("calls=")[1].split(",")[0] for line in lines if line.startswith("cmdstat_xinfo|groups:")]
    return int(found[0]) if found else 0


def test_all_wrong_arguments_are_reported_at_once(tmp_path: Path) -> None:
    def read(*words: str) -> None:
        parser = PipelineParser(prog="x")
        add_arguments(parser)
        parser.read(words, MODULE)

    with pytest.raises(OptionError) as caught:
        read("--every", "0", "--chart", "x.png", "--for", "1h", "--most-pending", "none", "--option", "foo=1")
    for part in ("--every is '0'", "--chart needs --report", "--for needs --out", "--most-pending is 'none'",
                 "unknown option foo", "give one of --url"):  # fmt: skip
        assert part in str(caught.value)
    with pytest.raises(OptionError, match="--report .* holds no samples"):
        read("--report", str(tmp_path))


@pytest.mark.spark
@pytest.mark.slow
def test_samples_become_history_report_and_chart(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    with judge.client() as client:
        fill(client)
        now = lag_now(spark, url=url).collect()
        assert [(row["stream"], row["group"], row["lag"]) for row in now] == [
            ("a", "done", 0),
            ("a", "g", 59),
            ("b", "g", 1),
        ]
        assert now[1]["consumers"][0]["name"] == "c1"
        rows = rows_of(url, [b"a"])
    into = Samples(tmp_path)
    minute = 60_000_000
    for i, lag in enumerate((10, 20, 30, 40, 0)):
        moved = {"last_delivered_id": f"{START + max(i - 3, 0)}-0", "behind_ms": lag, "lag": lag}
        into.add([{**row, "sampled": row["sampled"] // minute * minute + i * minute, **moved} for row in rows[1:]])
    into.flush()
    samples = history(spark, tmp_path)
    (row,) = report(samples).collect()
    assert (row["stream"], row["samples"], row["lag"], row["lag_max"], row["pending_max"]) == ("a", 5, 0, 40, 41)
    assert row["still_ms"] == 180_000
    assert row["deliveries_max"] == 9  # three minutes without a delivery
    assert row["lag_a_minute"] == pytest.approx(0.0)  # 10 a minute up, then down to 0 at once
    assert chart(samples, tmp_path / "lag.png") == ["a / g"]
    assert (tmp_path / "lag.png").read_bytes()[:4] == b"\x89PNG"
