"""The package as a file, for executors on hosts where it is not installed.

    package()   rillet-<version>.zip: the source modules        --py-files, sc.addPyFile     interpreted
    archive()   rillet-<version>.tar.gz: the installed package  --archives                   as fast as it is here

Python imports source modules from a zip, but the system loads a shared library from a file only: from a zip the
package is the interpreted one, whatever was installed here, and so it is from a wheel, which is a zip. An archive is
unpacked by Spark in each executor's folder, so its compiled modules load; they were built for one Python version and
one kind of machine, which the executors must have. What rillet needs besides (pyarrow, xxhash) has to be there in any
case, like pyspark.

A streaming query plans on the driver, in a Python process that Spark tells to look for shipped files in a folder of
its own for streaming jobs, where there are none. `found_on_driver` lets it find the package where the driver itself
found it; executors on other hosts have no such path and go on using what was shipped. Rejected: pickling the whole
package by value, which compiled modules cannot be.

Both files are written anew at every call and hold nothing but the package; the same package gives the same bytes.
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say
_LIBRARIES = (".so", ".pyd")


def package(folder: str | Path | None = None) -> Path:
    """Write a zip of the package's source modules into a folder (a new temporary one) and return its path.

    Where this process has the package from such a zip itself, that is what is returned.
    """
    if _place().is_file():
        return _place()
    path = _folder(folder) / f"rillet-{rillet.__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in _modules():
            target.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return path


def archive(folder: str | Path | None = None) -> Path:
    """Write a tar.gz of the installed package, compiled modules too, into a folder and return its path."""
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
    """Within it, what is registered takes along where this process imported the package from, if Java does not know."""
    context = spark.sparkContext
    place = str(_place())
    known = context._jvm.java.lang.System.getenv("PYTHONPATH") if context._jvm is not None else None
    before = context.environment
    if place not in (known or "").split(os.pathsep) and not _installed(place):
        paths = [place, before.get("PYTHONPATH", "")]
        context.environment = {**before, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        yield
    finally:
        context.environment = before


def _installed(place: str) -> bool:
    return place in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def _place() -> Path:
    """Return the folder, or the zip, that this process imported the package from."""
    return Path(rillet.__file__).parents[1]


def _folder(folder: str | Path | None) -> Path:
    return Path(tempfile.mkdtemp(prefix="rillet-")) if folder is None else Path(folder)


def _modules(*more: str) -> Iterator[tuple[str, bytes]]:
    """Yield the package's modules, rillet/..., in order of their names, and files that end like `more`."""
    root = Path(rillet.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", *more) and path.is_file():
            yield f"rillet/{path.relative_to(root).as_posix()}", path.read_bytes()
