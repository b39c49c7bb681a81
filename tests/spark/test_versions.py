"""Other versions of PySpark and Python, and the calls of Spark before 4.2.

The tests run a driver program (version_driver.py) on the environments of tools/try_pythons.py under build/pythons, as
far as these exist, and create them in long runs. The PySpark of this environment is one of the versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet
from rillet.spark.options import parse
from rillet.spark.source import StreamingReader
from tests.judge import Judge, redis_binary, running_redis
from tests.spark.calls import SCHEMA
from tests.spark.standalone import spark_home
from tools.try_pythons import find_python, folder_of, prepare

VERSIONS = [("3.11", "3.5"), ("3.10", "4.0"), ("3.11", "4.0"), ("3.11", "4.1"), ("3.11", "4.2")]
Add = Callable[..., None]


def run(python: str, package: Path, folder: Path) -> dict[str, Any]:
    """Return what the driver program finds on one PySpark."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    environment = {name: text for name, text in os.environ.items() if name not in ("SPARK_HOME", "RILLET_EXPECT")}
    environment |= {"PYTHONPATH": str(package), "PYSPARK_PYTHON": python}
    with running_redis() as judge:
        url = f"redis://127.0.0.1:{judge.port}"
        driver = Path(__file__).with_name("version_driver.py")
        done = subprocess.run([python, str(driver), url, str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], version: str) -> None:
    """Compare what the driver program has found with what a version of PySpark can do."""
    assert found["version"].startswith(f"{version}.")
    assert found.pop("partitions") == 3
    assert found["sources"] is (version != "3.5")
    if version == "3.5":
        assert found.pop("refused").startswith("rillet: format('rillet') needs PySpark 4.0 or newer, and this is 3.5.")
    else:
        assert found["limits"] is (version not in ("4.0", "4.1"))
        assert found.pop("sizes") == [300, 300, 300, 300, 300, 100, 100]
        assert found.pop("rows of the last batch") in (0, 100)
    facts = {name: value for name, value in found.items() if name not in ("version", "sources", "limits")}
    assert all(value is True for value in facts.values()), facts


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("python", "version"), VERSIONS, ids=str)
def test_an_installed_version(python: str, version: str, tmp_path: Path) -> None:
    """The environments of tools/try_pythons.py, if they exist; on 3.10 the package is interpreted, as in src."""
    own = folder_of(python, version) / "venv" / "bin" / "python"
    if not own.exists():
        pytest.skip(f"build/pythons has no PySpark {version} on Python {python}: `make test-long` installs it")
    package = Path(rillet.__file__).parents[1] if python == "3.11" else Path("src").absolute()
    check(run(str(own), package, tmp_path), version)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(("python", "version"), VERSIONS, ids=str)
def test_a_version_from_the_package_index(python: str, version: str, tmp_path: Path) -> None:
    found = find_python(python)
    if found is None:
        pytest.skip(f"Python {python} is not installed")
    folder = prepare(python, found, version, whole=False)
    check(run(str(folder / "venv" / "bin" / "python"), Path("src").absolute(), tmp_path), version)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_this_version(tmp_path: Path) -> None:
    import pyspark

    version = ".".join(pyspark.__version__.split(".")[:2])
    check(run(sys.executable, Path(rillet.__file__).parents[1], tmp_path), version)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_session_of_sql_only(judge: Judge, url: str, add: Add, tmp_path: Path) -> None:
    """spark-sql has no Python in which someone could register the source: Spark finds the package pyspark_rillet."""
    add(range(1000))
    statements = f"""
        CREATE TEMPORARY VIEW events (id string, n long) USING rillet OPTIONS (url '{url}', stream 'events');
        CREATE TEMPORARY VIEW late (n long) USING rillet OPTIONS (url '{url}', stream 'late');
        INSERT INTO late SELECT n FROM events WHERE n >= 990;
        SELECT count(*), sum(n) FROM late;
    """
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    environment |= {"PYTHONPATH": str(Path(rillet.__file__).parents[1]), "PYSPARK_PYTHON": sys.executable}
    command = [str(spark_home() / "bin" / "spark-sql"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run([*command, "-e", statements], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["10", str(sum(range(990, 1000)))]


# ---- the calls of Spark before 4.2 ---------------------------------------------------------------------------------


def reader(url: str, **more: str) -> StreamingReader:
    return StreamingReader(parse({"url": url, "stream": "events", **more}), SCHEMA, 2)


def numbers(source: StreamingReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [n for part in source.partitions(start, end) for batch in source.read(part)
            for n in batch.column("n").to_pylist()]  # fmt: skip


def test_a_reader_that_is_called_without_a_start(url: str, add: Add) -> None:
    """It continues after its own last offset, in the same process and after a restart."""
    add(range(10))
    source = reader(url)
    first = source.latestOffset()
    start = source.initialOffset()
    assert numbers(source, start, first) == list(range(10))
    assert source.latestOffset() == first
    add(range(10, 15))
    second = source.latestOffset()
    assert numbers(source, first, second) == list(range(10, 15))
    source.stop()
    again = reader(url)
    assert again.partitions(second, second) == []  # Spark's first call after a restart
    assert numbers(again, first, second) == list(range(10, 15))
    add(range(15, 18))
    third = again.latestOffset()
    assert numbers(again, second, third) == list(range(15, 18))
    again.stop()


def test_a_cap_holds_for_a_reader_that_is_called_without_a_limit(url: str, add: Add) -> None:
    add(range(10))
    source = reader(url, maxEntriesPerTrigger="4")
    start = source.initialOffset()
    sizes = []
    while (end := source.latestOffset()) != start:
        sizes.append(len(numbers(source, start, end)))
        start = end
    assert sizes == [4, 4, 2]
    source.stop()


def test_a_group_waits_for_a_batch_that_spark_repeats(judge: Judge, url: str, add: Add) -> None:
    """After a restart the last offset may be that of a batch whose rows are not in the sink yet."""
    add(range(10))
    source = reader(url, group="g", maxEntriesPerTrigger="4")
    start = source.initialOffset()
    end = source.latestOffset()
    source.partitions(start, end)
    second = source.latestOffset()
    source.stop()

    def position() -> str:
        with judge.client() as client:
            (flat,) = client.execute_command("XINFO", "GROUPS", "events")
            return str(flat[flat.index(b"last-delivered-id") + 1].decode())

    assert position() == end["streams"]["events"]
    again = reader(url, group="g", maxEntriesPerTrigger="4")
    again.partitions(second, second)
    again.latestOffset()  # of an available-now query, before Spark repeats the batch
    assert position() == end["streams"]["events"]
    again.partitions(end, second)
    again.latestOffset()
    assert position() == second["streams"]["events"]
    again.stop()
