"""The Spark session that all tests share, and streams to read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.spark.java import JavaMissing, require_java
from rillet.spark.options import parse
from tests.cluster import Cluster, running_cluster
from tests.judge import Judge, redis_binary
from tests.spark.standalone import SMALL_JAVA, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRIES = 50_000


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the session."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def installed_pyspark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let Spark's Python processes import the pyspark that is installed, not its copy in Spark's ZIP file.

    Python does not keep what it compiles from a ZIP file, so each process would compile pyspark again: a second or two
    for every streaming query. Here, SPARK_HOME names a folder without the ZIP file.
    """
    if find_spec("pyspark") is None:
        yield
        return
    home = tmp_path_factory.mktemp("spark-home")
    for name in ("bin", "jars"):
        (home / name).symlink_to(spark_home() / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        yield


@pytest.fixture(autouse=True)
def task_ends() -> Iterator[None]:
    """Forget the task that a test has set (tests/spark/writing.py): a later test would have its query's ID."""
    yield
    if "pyspark.taskcontext" in sys.modules:
        sys.modules["pyspark.taskcontext"].TaskContext._setTaskContext(None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local[2] session in which format("rillet") is known."""
    pytest.importorskip("pyspark")
    try:
        require_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    from rillet.spark import session

    # Few shuffle partitions and a quick JIT: the data here is small. By default, Spark waits fifteen seconds for a
    # Python process to connect: too few under load.
    started = session("local[2]", "rillet tests", spark_sql_shuffle_partitions="2", spark_driver_memory="1g",
                      spark_driver_extraJavaOptions=SMALL_JAVA,
                      spark_python_authenticate_socketTimeout="250s")  # fmt: skip
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cluster_of_session() -> Iterator[Cluster]:
    """Three masters with a replica each, which tests share through `cluster`."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster(replicas=True) as started:
        yield started


@pytest.fixture
def cluster(cluster_of_session: Cluster) -> Cluster:
    """The cluster, its data gone."""
    cluster_of_session.flush()
    return cluster_of_session


@pytest.fixture
def url(judge: Judge) -> str:
    """The judge's address, its data gone."""
    with judge.client() as client:
        client.flushall()
    return f"redis://127.0.0.1:{judge.port}"


def number(i: int) -> list[bytes]:
    """Return the fields of entry i."""
    return [b"n", b"%d" % i, b"amount", b"%d.25" % i, b"user", b"u%d" % (i % 100)]


def entry_id(i: int) -> str:
    """Return the ID of entry i: three to a millisecond."""
    return f"{1_700_000_000_000 + i // 3}-{i % 3}"


@pytest.fixture
def add(judge: Judge) -> Callable[..., None]:
    """Append the entries of some numbers to a stream."""

    def append(numbers: Sequence[int], stream: str = "events") -> None:
        from rillet.client.address import Address
        from rillet.client.connection import Connection

        with Connection(Address(port=judge.port), 30) as connection:
            connection.send(
                b"".join(pack_command([b"XADD", stream.encode(), entry_id(i).encode(), *number(i)]) for i in numbers)
            )
            for i in numbers:
                assert connection.reply() == entry_id(i).encode()

    return append


def options(url: str, stream: str = "events", **more: Any) -> Any:
    """Return parsed options."""
    return parse({"url": url, "stream": stream, **more})
