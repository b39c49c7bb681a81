"""Try an installed or freshly built wheel: compiled, complete, and working from an empty folder.

    python tools/try_wheel.py          try the rillet that this Python imports
    python tools/try_wheel.py dist     install dist/*.whl into a new virtual environment and try that

The second form does the same as a user: a plain `pip install` of the wheel, then the README's first program.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import tempfile, rillet
assert rillet.compiled(), "the wheel is not compiled"
with tempfile.TemporaryDirectory() as folder:
    with rillet.open(folder + "/events.rillet") as store:
        orders = store.stream("orders")
        first = orders.add({"customer": "42", "total": "99.90"})
        group = orders.group("billing")
        for message in group.consumer("worker-1").messages(stop_when_empty=True):
            message.ack()
        assert [entry.id for entry in orders] == [first]
    with rillet.open(folder + "/events.rillet") as store:
        assert len(store.stream("orders")) == 1
        assert b"arguments" in store.execute("COMMAND", "DOCS", "xadd")[1]
        assert len(store.execute("XINFO", "HELP")) > 3
print(f"rillet {rillet.__version__} works from {rillet.__file__}")
"""


def try_here(python: str) -> None:
    """Run the README's quickstart and `rillet info` in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-I", "-c", PROGRAM], cwd=folder, check=True)
        subprocess.run([python, "-I", "-m", "rillet", "info"], cwd=folder, check=True)


def try_wheel(wheel: Path) -> None:
    """Install the wheel into a new environment and try it there."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
        subprocess.run(install, check=True)
        try_here(str(python))


def main() -> None:
    """Try the wheel of the folder given, or the installed package."""
    if len(sys.argv) < 2:
        try_here(sys.executable)
        return
    wheels = sorted(Path(sys.argv[1]).glob("rillet-*.whl"))
    if not wheels:
        raise SystemExit(f"try_wheel: there is no rillet wheel in {sys.argv[1]}")
    try_wheel(wheels[-1])


if __name__ == "__main__":
    main()
