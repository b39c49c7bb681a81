"""Translate modules to C for setup.py. Each line of standard input is a job, each line of standard output its end.

    {"name": "rillet.structs.rax", "source": "src/rillet/structs/rax.py", "c": "build/c/rillet.structs.rax.c",
     "directives": {"boundscheck": true}}                    a module; without a source: the shared utility code
    {}                                                       done; {"error": "..."} if the module has an error

Cython's messages go to standard error. A process translates many modules, because the start of Cython costs as much as
a small module. Two translators run side by side; Cython's state does not allow that within one process.

Cython reads copies of the sources and of the .pxd files:

- A typed module imports `cython` from rillet._cython, which has a substitute for it. Cython knows its own module only
  by `import cython`.
- A function that returns a C integer fails by -1 and an exception. This is Cython's default in a .py file. In a .pxd
  file, whose functions would otherwise cost each caller a question to Python, it is added here. The function in the .py
  file then loses `cfunc` or `ccall`, for Cython compares both forms. (Not `long long`: Cython would write the -1 as
  `-1LLLL`; and an `inline` function of a .pxd file says `exceptval` itself.)

C code declares and imports each type that it reaches by cimports, whether it uses the type or not: that had been a
third of the C of a command. So a module sees its own .pxd file in full, but of the others only what any module uses,
and the cimports that these declarations name.
"""

from __future__ import annotations

import contextlib
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
IMPORT = "from rillet._cython import cython\n"
NUMBER = re.compile(r"^ *cp?def (?:inline )?(?:bint|int|Py_ssize_t) (\w+)\([^()]*\)$", re.MULTILINE)
CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:\n((?: .*\n|\n)*)", re.MULTILINE)
BASE = re.compile(r"^class \w+\((\w+)\):$", re.MULTILINE)
DEF = re.compile(r"^( *@cython\.(?:cfunc|ccall)\n(?: *@.*\n)*)(?= *def (\w+)\()", re.MULTILINE)
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


def with_default(text: str) -> str:
    """Return a .pxd file in which functions that return a C integer, and do not say how they fail, do so by -1."""
    return NUMBER.sub(lambda found: f"{found[0]} except? -1", text)


def methods(pxds: list[str]) -> dict[str, set[str]]:
    """Return the methods of each class that return a C integer, its own and those of its bases."""
    bodies = {name: (base, body) for pxd in pxds for name, base, body in CLASS.findall(pxd)}

    def of(name: str) -> set[str]:
        base, body = bodies.get(name, ("", ""))
        return {found[1] for found in NUMBER.finditer(body)} | (of(base) if base else set())

    return {name: of(name) for name in bodies}


def copied(source: str, pxd: str, inherited: dict[str, set[str]]) -> str:
    """Return the source of a module, with the same lines, as Cython reads it with the module's .pxd file."""
    declared = {found[1] for found in NUMBER.finditer(pxd)}
    declared = declared.union(*(inherited.get(base, ()) for base in BASE.findall(source)))

    def as_declared(found: re.Match[str]) -> str:
        if found[2] not in declared or "exceptval" in found[1]:
            return found[1]
        return re.sub(r"@cython\.(cfunc|ccall)\n", "#\n", found[1])

    return DEF.sub(as_declared, source.replace(IMPORT, "import cython\n"))


def cimported(folder: Path) -> set[str]:
    """Return every name that a file below a folder cimports."""
    files = [*folder.rglob("*.pxd"), *folder.rglob("*.py")]
    lines = [line for path in files for line in CIMPORT.findall(path.read_text(encoding="utf-8"))]
    return {part.split()[0] for _, names in lines for part in _parts(names)}


def _parts(names: str) -> list[str]:
    """Return the names of a cimport, each "name" or "name as other"."""
    return [part.strip() for part in names.strip("()").split(",") if part.strip()]


def translate(job: dict[str, Any], root: Path, inherited: dict[str, set[str]]) -> None:
    """Write the C file of a job.

    The current folder has the declarations of each module, and gets a copy of the source below the same path, by which
    C code names it. The paths of the job are relative to root.
    """
    c = str(root / job["c"])
    if "source" not in job:
        shared = CompilationOptions(default_options, shared_c_file_path=c)  # type: ignore[no-untyped-call]
        generate_shared_module(shared)  # type: ignore[no-untyped-call]
        return
    options = CompilationOptions(  # type: ignore[no-untyped-call]
        default_options,
        include_path=[".", str(root / "src")],
        compiler_directives=job["directives"],
        output_file=c,
        shared_utility_qualified_name=SHARED,
    )
    source = Path(job["source"])
    own, seen = root / source.with_suffix(".pxd"), Path(f"{job['name']}.pxd")
    pxd = own.read_text() if own.exists() else ""
    for_others = seen.read_text() if pxd else ""
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(copied((root / source).read_text(encoding="utf-8"), pxd, inherited), encoding="utf-8")
    if pxd:
        seen.write_text(with_default(pxd))
    result = compile_single(str(source), options, job["name"])  # type: ignore[no-untyped-call]
    if pxd:
        seen.write_text(for_others)
    if result.num_errors:
        raise ValueError(f"{job['source']}: Cython reports {result.num_errors} errors")


def main() -> None:
    """Do the jobs until standard input ends."""
    gc.disable()  # a third of the time, with the syntax trees of whole modules
    root = Path.cwd()
    used = cimported(root / "src")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        pxds = {path: path.read_text() for path in (root / "src").rglob("*.pxd")}
        inherited = methods(list(pxds.values()))
        for path, text in pxds.items():
            dotted = ".".join(path.relative_to(root / "src").with_suffix("").parts)
            Path(f"{dotted}.pxd").write_text(with_default(declarations(text, used)))
        for count, line in enumerate(sys.stdin, 1):
            try:
                translate(json.loads(line), root, inherited)
                answer = {}
            except Exception as error:
                answer = {"error": str(error).strip() or type(error).__name__}
            print(json.dumps(answer), flush=True)
            if count % JOBS_PER_COLLECTION == 0:
                gc.collect()


if __name__ == "__main__":
    main()
