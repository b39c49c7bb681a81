"""The files for --py-files and --archives are written into folders that need not exist."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import rillet
from rillet.spark.packaging import archive, package


def test_the_folder_is_created(tmp_path: Path) -> None:
    packed = package(tmp_path / "out" / "zip")
    assert packed == tmp_path / "out" / "zip" / f"rillet-{rillet.__version__}.zip"
    script = "import sys; sys.path[:0] = sys.argv[1:]; import rillet; print(rillet.__file__, rillet.compiled())"
    ended = subprocess.run([sys.executable, "-I", "-c", script, str(packed)], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [f"{packed}/rillet/__init__.py", "False"]
    first = archive(str(tmp_path / "tar" / "files"))
    with tarfile.open(first) as files:
        assert "rillet/spark/packaging.py" in files.getnames()
    assert archive(tmp_path / "tar" / "files") == first  # which exists now
