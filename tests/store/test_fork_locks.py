"""A forked child keeps no lock of its parent, wherever the parent was when another part of it forked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rillet
from tests.forked import Forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this operating system has no fork")

# Forks at a moment inside Directory.lock, prints the child's PID, and ends as if it was killed. The child lives on.
_PARENT = """
import os, sys, time
from rillet.host import directory
import rillet

def fork_here(*arguments):
    pid = os.fork()
    if pid == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    print(pid, flush=True)
    os._exit(1)

owner, name = {moment}
setattr(owner, name, fork_here)
rillet.open(sys.argv[1]).set("k", 1)
"""


@pytest.mark.parametrize("moment", [
    'directory.Directory, "_remove_leavings"',  # both locks are held; no owner exists yet
    'directory.DirectoryLock, "acquire"',  # the lock file is locked, the log's folder is not
    'directory, "try_lock"',  # the lock file is open
])  # fmt: skip
def test_a_child_that_was_forked_during_the_opening_holds_no_lock(tmp_path: Path, moment: str) -> None:
    rillet.open(tmp_path / "store").close()
    with Forked([_PARENT.replace("{moment}", moment), tmp_path / "store"], function="tests.forked:run_text",
                stderr=None) as parent:  # fmt: skip
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
    try:
        with rillet.open(tmp_path / "store") as store:
            assert store.execute("SET", "k", "2")
    finally:
        os.kill(child, signal.SIGKILL)
