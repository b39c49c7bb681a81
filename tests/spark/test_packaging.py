"""What executors import: the file for --py-files (test_standalone.py tests --archives), and how much of the package."""

from __future__ import annotations

import subprocess
import sys
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


def test_a_worker_that_reads_a_stream_imports_no_engine() -> None:
    """Spark starts a Python process for each streaming query, and more for its tasks: each imports the data source."""
    pytest.importorskip("pyspark")
    script = "import sys, rillet.spark.source; print({'rillet.runtime', 'rillet.store'} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
