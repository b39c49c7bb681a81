"""`python -m benchmarks.fresh_clone`: the time from a fresh clone to the chart of the demo, by the clock of a newcomer.

Clones the last commit into a temporary folder and runs `make demo` three times: with empty package caches, in a second
clone with the caches of the first, and once more in that clone. Prints the wall time and the CPU time of each run, the
sizes and seconds of the downloads, the modules of the compiler, and the load of the machine.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT

UNITS = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}


def cpu_seconds() -> float:
    """Return the CPU time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def downloads(log: Path) -> str:
    """Return the megabytes and seconds of the downloads that uv noted; pip notes no seconds."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    sizes = re.findall(r"^ *Downloading \S+ \(([\d.]+)(KiB|MiB|GiB)\)", text, re.MULTILINE)
    prepared = re.findall(r"^Prepared (\d+) packages? in (.*)$", text, re.MULTILINE)
    packages, seconds = prepared[-1] if prepared else ("0", "0s")
    return f"{packages} packages prepared in {seconds}, {sum(float(n) * UNITS[u] for n, u in sizes):.0f} MiB downloaded"


def demo(title: str, folder: Path, caches: Path) -> None:
    """Run `make demo` in a clone and print its figures."""
    environment = {**os.environ, "PIP_CACHE_DIR": str(caches / "pip"), "UV_CACHE_DIR": str(caches / "uv")}
    environment.pop("PYTHONPATH", None)
    log = folder / ".venv" / "packages.log"
    before = log.stat().st_mtime if log.exists() else 0.0
    load, cpu, started = os.getloadavg()[0], cpu_seconds(), time.monotonic()
    done = subprocess.run(["make", "demo"], cwd=folder, env=environment, capture_output=True, text=True)
    wall = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"make demo failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    print(f"{title}: {wall:.0f} s, {cpu_seconds() - cpu:.0f} s of CPU; load at the start {load:.1f}")
    if log.exists() and log.stat().st_mtime != before:
        print(f"    {downloads(log)}")
    for line in re.findall(r"(\d+ modules to compile|compile +done in \d+ s|packages +ready after \d+ s)", done.stdout):
        print(f"    {line}")


def main() -> None:
    """Measure the three runs."""
    with tempfile.TemporaryDirectory() as name:
        caches = Path(name, "caches")
        for clone in ("first", "second"):
            subprocess.run(["git", "clone", "-q", str(ROOT), str(Path(name, clone))], check=True)
        demo("fresh clone, empty package caches", Path(name, "first"), caches)
        demo("fresh clone, full package caches", Path(name, "second"), caches)
        demo("the same clone again", Path(name, "second"), caches)


if __name__ == "__main__":
    main()
