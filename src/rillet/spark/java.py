"""Checks, before Spark starts, that a Java version is installed that Spark supports.

Without Java, Spark fails with a traceback that ends in JAVA_GATEWAY_EXITED. `require_java` instead raises an error
whose message is one line with the remedy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from rillet.errors import RilletError

OLDEST = 17


class JavaMissing(RilletError):
    """Spark needs Java, and no suitable Java was found; the message is one line that includes the remedy."""


def require_java() -> str:
    """Return the path of the java program that Spark will start; raise JavaMissing if it is absent or too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if program is None:
        raise JavaMissing(f"Spark needs Java, but there is no java on the PATH: {remedy}")
    version = java_version(program)
    if version is None:
        place = f"JAVA_HOME is {home}, but {program}" if home else program
        raise JavaMissing(f"Spark needs Java, but {place} does not run: {remedy}")
    if version < OLDEST:
        raise JavaMissing(f"Spark needs Java {OLDEST} or newer, but {program} is version {version}: {remedy}")
    return program


def java_version(program: str) -> int | None:
    """Return the major version that `java -version` prints; None if the command fails."""
    try:
        result = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(version[1]) if result.returncode == 0 and version else None
