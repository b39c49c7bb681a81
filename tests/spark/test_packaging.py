"""What executors import: the file for --py-files (test_standalone.py tests --archives), and how much of the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rillet
from rillet.spark.packaging import package


def test_the_folder_is_created(tmp_path: Path) -> None:
    packed = package(tmp_path / "out" / "zip")
    assert packed == tmp_path / "out" / "zip" / f"rillet-{rillet.__version__}.zip"
    script = "import sys; sys.path[:0] = sys.argv[1:]; import rillet; print(rillet.__file__, rillet.compiled())"
    command = [sys.executable, "-I", "-c", script, str(packed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [f"{packed}/rillet/__init__.py", "False"]
    assert package(str(tmp_path / "out" / "zip")) == packed  # into a folder that exists now


def test_the_file_contains_the_data_files(tmp_path: Path) -> None:
    script = "import sys; sys.path[:0] = sys.argv[1:]; import rillet; print(rillet.open().execute('XINFO', 'HELP')[-2])"
    command = [sys.executable, "-I", "-c", script, str(package(tmp_path))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "b'HELP'\n"


USES = {
    "read": """
reader = source.reader(StructType().add("n", "long").add("user", "string"))
print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
""",
    "follow": """
reader = source.streamReader(StructType().add("n", "long").add("user", "string"))
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
print(sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)))
""",
    "write": """
writer = source.streamWriter(StructType().add("n", "long").add("user", "string"), False)
told = {"stageId": 0, "partitionId": 0, "attemptNumber": 0, "taskAttemptId": 0, "cpus": 1, "resources": {}}
told["localProperties"] = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
TaskContext._setTaskContext(TaskContext.from_json(told))
rows = pyarrow.table({"n": [1, 2, 3], "user": ["a", "b", "c"]}).to_batches()
writer.commit([writer.write(iter(rows))], 0)
print(3)
""",
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["stream", "hash"])
def test_what_a_worker_imports(url: str, add: Callable[..., None], use: str, kind: str) -> None:
    """Spark starts a Python process for each streaming query, and more for tasks: each imports the data source."""
    pytest.importorskip("pyspark")
    if (use, kind) == ("follow", "hash"):
        pytest.skip("only streams can be followed")
    hashes = {"type": "hash", "keyPrefix": "row:", "keyColumn": "n"}
    options = {"url": url, **({"stream": "events"} if kind == "stream" else hashes)}
    add(range(3))
    script = (
        "import sys, pyarrow; from pyspark import TaskContext; from pyspark.sql.types import StructType;"
        f"from rillet.spark.source import RilletDataSource; source = RilletDataSource({options})\n{USES[use]}\n"
        "print(*[name for name in sys.modules if name.startswith('rillet.')])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rows, names = ended.stdout.splitlines()
    assert rows == ("0" if (use, kind) == ("read", "hash") else "3")
    imported = names.split()
    assert len(imported) <= 110, imported
    rooms = {name.split(".")[1] for name in imported}
    rooms -= {"_cython", "_cyutility", "errors", "loggers", "real_time", "units"}
    assert rooms == {"client", "columns", "protocol", "spark", "structs", "types"}
    assert not [name for name in imported if name.startswith(("rillet.spark.changes", "rillet.spark.pipelines"))]
