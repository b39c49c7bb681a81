"""Translate modules to C for setup.py. Each line of standard input is a job, each line of standard output its end.

    python -m tools.translator FOLDER        what tools/declarations.py has written

    {"name": "rillet.structs.rax", "source": "src/rillet/structs/rax.py", "c": "build/c/rillet.structs.rax.c",
     "directives": {"boundscheck": true}}                    a module; without a source: the shared utility code
    {}                                                       done; {"error": "..."} if the module has an error

Cython's messages go to standard error. The process reads all .pxd files once, and translates each module in a copy of
itself (fork): a typed module reaches thirty of them, and reading them again had been two thirds of the time of a
command. Without fork each module reads its own. Two translators run side by side; Cython's state does not allow that
within one process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from Cython.Build.SharedModule import generate_shared_module
from Cython.Compiler import Errors
from Cython.Compiler.Main import Context, compile_single
from Cython.Compiler.Options import CompilationOptions, default_options

SHARED = "rillet._cyutility"  # the extension with the utility code of all others


def options(job: dict[str, Any], c: str) -> Any:
    """Return Cython's options for a job."""
    if "source" not in job:
        return CompilationOptions(default_options, shared_c_file_path=c)  # type: ignore[no-untyped-call]
    return CompilationOptions(  # type: ignore[no-untyped-call]
        default_options,
        include_path=["."],
        compiler_directives=job["directives"],
        output_file=c,
        shared_utility_qualified_name=SHARED,
    )


def translate(job: dict[str, Any], c: str, context: Any) -> None:
    """Write the C file of a job; C code names the source by its path below the current folder."""
    if "source" not in job:
        generate_shared_module(options(job, c))  # type: ignore[no-untyped-call]
        return
    result = compile_single(job["source"], options(job, c), job["name"], context=context)  # type: ignore[no-untyped-call]
    if result.num_errors:
        raise ValueError(f"{job['source']}: Cython reports {result.num_errors} errors")


def declared(job: dict[str, Any]) -> Any:
    """Return a context of Cython that has read all .pxd files."""
    Errors.init_thread()  # type: ignore[no-untyped-call]
    context = Context.from_options(options(job, ""))  # type: ignore[no-untyped-call]
    for path in sorted(Path().glob("*.pxd")):
        context.find_module(path.stem)
    errors = Errors.get_errors_count()  # type: ignore[no-untyped-call]
    if errors:
        raise ValueError(f"the .pxd files: Cython reports {errors} errors")
    return context


def in_copy(job: dict[str, Any], c: str, context: Any) -> None:
    """Do a job in a copy of this process."""
    child = os.fork()
    if child == 0:
        try:
            translate(job, c, context)
            os._exit(0)
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise ValueError(f"{job.get('source', c)}: Cython reports errors")


def main() -> None:
    """Do the jobs until standard input ends."""
    gc.disable()  # a third of the time, with the syntax trees of whole modules
    root, context = Path.cwd(), None
    with contextlib.chdir(sys.argv[1]):
        for line in sys.stdin:
            try:
                job = json.loads(line)
                c = str(root / job["c"])
                typed = Path(f"{job.get('name')}.pxd").exists()
                if not hasattr(os, "fork"):
                    translate(job, c, None)
                    gc.collect()
                else:
                    if typed and context is None:
                        context = declared(job)
                    in_copy(job, c, context if typed else None)
                answer = {}
            except Exception as error:
                answer = {"error": str(error).strip() or type(error).__name__}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
