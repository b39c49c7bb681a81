"""The file for --py-files is written into a folder that need not exist; test_standalone.py does so for --archives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
