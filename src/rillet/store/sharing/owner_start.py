"""Starting an owner process (rillet.store.sharing.owner_process) and waiting until it owns the directory.

The process is a new interpreter with the same program, sys.path and environment. Nothing of this process's memory is
copied. Its errors are raised here, as if this process had opened the directory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rillet.errors import StoreError
from rillet.host.recovery import Recovery, report
from rillet.modules.loading import NO_MODULES, OpenModules
from rillet.persistence.aof.rewrite_format import SpawnedBaseWriter
from rillet.server.unix_socket import UNIX_SOCKETS
from rillet.store.display.progress import ProgressBar

Progress = Callable[[int, int], None]


class OwnerKilled(StoreError):
    """The process was killed before it owned the directory; it may be started again."""


def check_possible() -> None:
    """Raise StoreError if this system or this program cannot start an owner process."""
    if not UNIX_SOCKETS:
        raise StoreError("owner='process' needs Unix sockets, which this system lacks: omit it, or use rillet serve")
    if not SpawnedBaseWriter.possible():
        raise StoreError(
            f"owner='process' starts a Python interpreter, and {sys.executable or 'this program'} is none: omit it, or "
            "use rillet serve"
        )


def start_owner(path: Path, settings: dict[str, Any], grace: float, progress: Progress | None,
                modules: OpenModules = NO_MODULES) -> Recovery | None:  # fmt: skip
    """Start a process that owns the directory; return its recovery, None if another process owns the directory.

    Raise what opening the directory raises.
    """
    process = subprocess.Popen(
        # -P: do not import modules from the working directory.
        [sys.executable, "-P", "-m", "rillet.store.sharing.owner_process", str(path)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # the reason is in its stderr
            request = {"path": str(path), "settings": settings, "grace": grace, "modules": modules}
            process.stdin.write(pickle.dumps(request))
            process.stdin.close()
        with ProgressBar(f"{path.name}: replaying") as bar:
            return _answered(path, process.stdout, process.stderr, progress or bar)
    finally:
        process.kill()  # the process that forks, if this one was interrupted; otherwise it has ended
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def _answered(path: Path, answers: IO[bytes], errors: IO[bytes], progress: Progress) -> Recovery | None:
    """Read the answers of the process until it is ready."""
    while True:
        try:
            answer, *values = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            kind = StoreError if last else OwnerKilled
            raise kind(f"{path}: the process that was to own the directory ended while it opened it: "
                       f"{last or 'it was killed'}") from None  # fmt: skip
        if answer == "progress":
            progress(*values)
        elif answer == "busy":
            return None
        elif answer == "failed":
            raise values[0]
        else:
            recovery: Recovery = values[1]
            report(recovery)
            return recovery
