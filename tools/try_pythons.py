"""Run the suite on other versions of Python and PySpark, each in a separate virtual environment under build/pythons.

    python tools/try_pythons.py                               every Python from 3.11 up on this machine, without Spark
    python tools/try_pythons.py 3.13 --speed compiled tests/structs
    python tools/try_pythons.py 3.11 --pyspark 4.2.0          the Spark suite on that PySpark, compiled
    python tools/try_pythons.py 3.10 --pyspark 4.0            the newest 4.0; Python 3.10 serves rillet.spark only

The end is a table: Python, build, result. The exit status is 1 if any run failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
CANDIDATES = ("3.11", "3.12", "3.13", "3.14", "3.15")
EXTRAS = (
    "server", "metrics", "opentelemetry", "completion", "crc", "codecs", "redis", "arrow", "pandas", "polars",
    "inspect",
)  # fmt: skip
ALSO = ("rich", "selenium", "xxhash")  # what tests of the demo, of the site and of the formats import


def find_python(version: str) -> str | None:
    """Return a Python of this version: on the path, or under pyenv."""
    found = shutil.which(f"python{version}")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    pyenv = sorted(versions.glob(f"{version}.*/bin/python"))
    for candidate in [*(str(path) for path in reversed(pyenv)), *([found] if found else [])]:
        done = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        if done.returncode == 0 and f"Python {version}." in done.stdout:
            return candidate
    return None


def packages(pyspark: str | None) -> list[str]:
    """Return what the suite needs, from the extras and groups of pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = declared["project"]["optional-dependencies"], declared["dependency-groups"]
    listed = {one for extra in EXTRAS for one in extras[extra] if not one.startswith("rillet[")}
    listed.update(one for group in ("build", "test") for one in groups[group] if isinstance(one, str))
    return [*sorted(listed), *ALSO, *of_spark(pyspark)]


def of_spark(pyspark: str | None) -> list[str]:
    """Return a version of PySpark as a requirement; 4.0 stands for the newest 4.0."""
    return [f"pyspark=={pyspark}" + ("" if pyspark.count(".") > 1 else ".*")] if pyspark else []


def folder_of(version: str, pyspark: str | None) -> Path:
    """Return the folder of an environment, which need not exist."""
    return ROOT / "build" / "pythons" / (version + (f"-pyspark-{pyspark}" if pyspark else ""))


def prepare(version: str, python: str, pyspark: str | None, whole: bool = True) -> Path:
    """Return the folder of the environment: a virtual environment with a compiled build.

    whole=False: without the build, and with what a driver program of tests/spark/test_versions.py imports.
    """
    folder = folder_of(version, pyspark)
    own = folder / "venv" / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(own), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        wanted = packages(pyspark) if whole else ["lupa", "pyarrow", "redis", "xxhash", *of_spark(pyspark)]
        subprocess.run([*pip, *wanted], check=True)
    if not whole:
        return folder
    environment = {**os.environ, "RILLET_REQUIRE_EXTENSIONS": "1", "RILLET_C_DIR": str(folder / "c")}
    build = ["setup.py", "-q", "build", "--build-lib", str(folder / "compiled"), "--build-temp", str(folder / "temp")]
    with (folder / "compile.log").open("w") as log:
        subprocess.run([str(own), *build], cwd=ROOT, env=environment, check=True, stdout=log, stderr=log)
    return folder


def test(folder: Path, speed: str, pyspark: str | None, arguments: list[str]) -> bool:
    """Run the suite on one build and return whether it passed."""
    build = folder / "compiled" if speed == "compiled" else ROOT / "src"
    environment = {**os.environ, "PYTHONPATH": str(build), "RILLET_EXPECT": speed}
    if speed == "interpreted":
        environment["RILLET_NO_CYTHON"] = "1"
    python = str(folder / "venv" / "bin" / "python")
    marks = ("both and " if speed == "interpreted" else "") + ("not long" if pyspark else "not spark and not long")
    where = arguments or (["tests/spark"] if pyspark else ["tests", "--ignore=tests/spark"])
    command = [python, "-m", "pytest", "-q", "--timeout=900", "-m", marks, *where]
    environment["PYSPARK_PYTHON"] = python
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


def main() -> int:
    """Prepare and test each version and print the table."""
    parser = argparse.ArgumentParser(description="Run the suite on other versions of Python and PySpark.")
    parser.add_argument("words", nargs="*", metavar="VERSION or PATH", help="versions such as 3.12; paths of tests")
    parser.add_argument("--speed", choices=("compiled", "interpreted"), action="append")
    parser.add_argument("--pyspark", metavar="VERSION", help="run the Spark suite on this PySpark, compiled")
    options = parser.parse_intermixed_args()
    versions = [word for word in options.words if word[0].isdigit()] or list(CANDIDATES)
    paths = [word for word in options.words if not word[0].isdigit()]
    speeds = ["compiled"] if options.pyspark else options.speed or ["compiled", "interpreted"]
    rows = []
    for version in versions:
        python = find_python(version)
        if python is None:
            print(f"Python {version} is not installed here: left out")
            continue
        folder = prepare(version, python, options.pyspark)
        rows += [(version, speed, test(folder, speed, options.pyspark, paths)) for speed in speeds]
    for version, speed, passed in rows:
        print(f"Python {version:5} {speed:12} {'passed' if passed else 'FAILED'}")
    return 0 if rows and all(passed for _, _, passed in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
