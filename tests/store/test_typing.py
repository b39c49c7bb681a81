"""pyright knows the type of a stream's values, as mypy does in `make lint`: tests/store/typing_sample.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("typing_sample.py")

pytestmark = pytest.mark.slow


def _expected() -> set[int]:
    lines = SAMPLE.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if "  # type: ignore[" in line}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "sample.py"))


def test_pyright(sample: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("pyright needs node")
    config = {"extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11", "typeCheckingMode": "strict",
              "reportUnusedExpression": False, "reportMissingTypeStubs": False,
              "enableTypeIgnoreComments": False}  # fmt: skip
    sample.with_name("pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", sample.parent],
        cwd=sample.parent, capture_output=True, text=True, env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )  # fmt: skip
    errors = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    found = {one["range"]["start"]["line"] + 1 for one in errors}
    assert found == _expected(), json.dumps(errors, indent=1)
