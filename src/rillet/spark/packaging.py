"""Packs rillet into one file, for executors on hosts where it is not installed.

    package()   rillet-<version>.zip: the source modules        --py-files, sc.addPyFile     interpreted
    archive()   rillet-<version>.tar.gz: the installed package  --archives                   compiled, if installed so

Python imports source modules from a zip file, but the operating system loads shared libraries from files only. So a
package in a zip file or a wheel (also a zip file) is always interpreted. Spark unpacks an archive into each executor's
folder, so its compiled modules can be loaded. The compiled modules require the Python version and platform for which
they were built. The other requirements (pyspark, pyarrow, xxhash) must be installed on the executors in any case.

A Python process on the driver plans a streaming query. Spark makes that process search a folder that lacks the shipped
files. `found_on_driver` adds the path from which the driver imported the package; executors on other hosts do not have
this path and use the shipped files. Rejected: pickling the package by value, which is impossible for compiled modules.

Every call writes its file again. The files contain only the package; the same package always gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rillet
from rillet.spark.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can contain
_LIBRARIES = (".so", ".pyd")


def package(folder: str | Path | None = None) -> Path:
    """Write a zip file of rillet's source modules into a folder (default: a new temporary one) and return its path.

    The folder is created if it does not exist. If this process has imported the package from such a zip file, return
    that file.
    """
    if _place().is_file():
        return _place()
    path = _folder(folder) / f"rillet-{rillet.__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in _modules():
            target.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return path


def archive(folder: str | Path | None = None) -> Path:
    """Write a tar.gz of the installed package, with its compiled modules, into a folder and return its path.

    The folder is created if it does not exist.
    """
    path = _folder(folder) / f"rillet-{rillet.__version__}.tar.gz"
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as target,
    ):
        for name, data in _modules(*_LIBRARIES):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    return path


@contextmanager
def found_on_driver(spark: SparkSession) -> Iterator[None]:
    """Make the planning processes of sources registered in this context import rillet from this process's path."""
    if is_connect(spark):  # the server's Python must have the package
        yield
        return
    context = spark.sparkContext
    place = str(_place())
    java_path = context._jvm.java.lang.System.getenv("PYTHONPATH") if context._jvm is not None else None
    before = context.environment
    installed = place in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    if place not in (java_path or "").split(os.pathsep) and not installed:
        paths = [place, before.get("PYTHONPATH", "")]
        context.environment = {**before, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        yield
    finally:
        context.environment = before


def _place() -> Path:
    """Return the folder or zip file from which this process imported the package."""
    return Path(rillet.__file__).parents[1]


def _folder(folder: str | Path | None) -> Path:
    """Return the folder to write into; create it if it does not exist."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="rillet-"))
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


def _modules(*more: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names (rillet/...) and bytes of source modules, data files, and files with other suffixes, sorted."""
    root = Path(rillet.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".txt", *more) and path.is_file() and path.name != "_not_compiled.txt":
            yield f"rillet/{path.relative_to(root).as_posix()}", path.read_bytes()
