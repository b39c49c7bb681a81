"""Translate modules to C for setup.py. Each line of standard input is a job, each line of standard output its end.

    {"name": "rillet.structs.rax", "source": "src/rillet/structs/rax.py", "c": "build/c/rillet.structs.rax.c",
     "directives": {"boundscheck": true}}                    a module; without a source: the shared utility code
    {}                                                       done; {"error": "..."} if the module has an error

Cython's messages go to standard error. A process translates many modules, because the start of Cython costs as much as
a small module. Two translators run side by side; Cython's state does not allow that within one process.

C code declares and imports each type that it reaches by cimports, whether it uses the type or not: that had been a
third of the C of a command. So a module sees its own .pxd file in full, but of the others only what any module uses,
and the cimports that these declarations name.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from Cython.Build.SharedModule import generate_shared_module
from Cython.Compiler.Main import compile_single
from Cython.Compiler.Options import CompilationOptions, default_options

SHARED = "rillet._cyutility"  # the extension with the utility code of all others
JOBS_PER_COLLECTION = 6
CIMPORT = re.compile(r"^ *(from +(?:[\w.]+ +cimport|cython\.cimports[\w.]+ +import)) +(\([^)]*\)|.*)\n", re.MULTILINE)
FUNCTION = re.compile(r"^cp?def (?!class\b)[^\n(]*?(\w+) *(?:\([^)]*\)[^\n]*)?\n", re.MULTILINE)


def declarations(text: str, used: set[str]) -> str:
    """Return a .pxd file without the functions that no module uses, and the cimports that only its module needs."""
    text = FUNCTION.sub(lambda found: found[0] if found[1] in used else "", text)
    named = set(re.findall(r"\w+", CIMPORT.sub("", text)))

    def kept(line: re.Match[str]) -> str:
        wanted = [part for part in _parts(line[2]) if part.split()[-1] in named]
        return f"{line[1]} {', '.join(wanted)}\n" if wanted else ""

    return CIMPORT.sub(kept, text)


def cimported(folder: Path) -> set[str]:
    """Return every name that a file below a folder cimports."""
    files = [*folder.rglob("*.pxd"), *folder.rglob("*.py")]
    lines = [line for path in files for line in CIMPORT.findall(path.read_text(encoding="utf-8"))]
    return {part.split()[0] for _, names in lines for part in _parts(names)}


def _parts(names: str) -> list[str]:
    """Return the names of a cimport, each "name" or "name as other"."""
    return [part.strip() for part in names.strip("()").split(",") if part.strip()]


def translate(job: dict[str, Any], folder: Path) -> None:
    """Write the C file of a job. The folder has the declarations of each module, in files that Cython finds first."""
    if "source" not in job:
        shared = CompilationOptions(default_options, shared_c_file_path=job["c"])  # type: ignore[no-untyped-call]
        generate_shared_module(shared)  # type: ignore[no-untyped-call]
        return
    options = CompilationOptions(  # type: ignore[no-untyped-call]
        default_options,
        include_path=[str(folder), "src"],
        compiler_directives=job["directives"],
        output_file=job["c"],
        shared_utility_qualified_name=SHARED,
    )
    own, seen = Path(job["source"]).with_suffix(".pxd"), folder / f"{job['name']}.pxd"
    for_others = seen.read_text() if own.exists() else ""
    if own.exists():
        seen.write_text(own.read_text())
    result = compile_single(job["source"], options, job["name"])  # type: ignore[no-untyped-call]
    if own.exists():
        seen.write_text(for_others)
    if result.num_errors:
        raise ValueError(f"{job['source']}: Cython reports {result.num_errors} errors")


def main() -> None:
    """Do the jobs until standard input ends."""
    gc.disable()  # a third of the time, with the syntax trees of whole modules
    with tempfile.TemporaryDirectory() as name:
        folder, used = Path(name), cimported(Path("src"))
        for path in Path("src").rglob("*.pxd"):
            dotted = ".".join(path.relative_to("src").with_suffix("").parts)
            (folder / f"{dotted}.pxd").write_text(declarations(path.read_text(), used))
        for count, line in enumerate(sys.stdin, 1):
            try:
                translate(json.loads(line), folder)
                answer = {}
            except Exception as error:
                answer = {"error": str(error).strip() or type(error).__name__}
            print(json.dumps(answer), flush=True)
            if count % JOBS_PER_COLLECTION == 0:
                gc.collect()


if __name__ == "__main__":
    main()
