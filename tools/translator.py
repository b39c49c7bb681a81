"""Translate modules to C for setup.py. Each line of standard input is a job, each line of standard output its end.

    {"name": "rillet.structs.rax", "source": "src/rillet/structs/rax.py", "c": "build/c/rillet.structs.rax.c",
     "directives": {"boundscheck": true}}                    a module; without a source: the shared utility code
    {}                                                       done; {"error": "..."} if the module has an error

Cython's messages go to standard error. A process translates many modules, because the start of Cython costs as much as
a small module. Two translators run side by side; Cython's state does not allow that within one process.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

from Cython.Build.SharedModule import generate_shared_module
from Cython.Compiler.Main import compile_single
from Cython.Compiler.Options import CompilationOptions, default_options

SHARED = "rillet._cyutility"  # the extension with the utility code of all others
JOBS_PER_COLLECTION = 6


def translate(job: dict[str, Any]) -> None:
    """Write the C file of a job."""
    if "source" not in job:
        shared = CompilationOptions(default_options, shared_c_file_path=job["c"])  # type: ignore[no-untyped-call]
        generate_shared_module(shared)  # type: ignore[no-untyped-call]
        return
    options = CompilationOptions(  # type: ignore[no-untyped-call]
        default_options,
        include_path=["src"],
        compiler_directives=job["directives"],
        output_file=job["c"],
        shared_utility_qualified_name=SHARED,
    )
    result = compile_single(job["source"], options, job["name"])  # type: ignore[no-untyped-call]
    if result.num_errors:
        raise ValueError(f"{job['source']}: Cython reports {result.num_errors} errors")


def main() -> None:
    """Do the jobs until standard input ends."""
    gc.disable()  # a third of the time, with the syntax trees of whole modules
    for count, line in enumerate(sys.stdin, 1):
        try:
            translate(json.loads(line))
            answer = {}
        except Exception as error:
            answer = {"error": str(error).strip() or type(error).__name__}
        print(json.dumps(answer), flush=True)
        if count % JOBS_PER_COLLECTION == 0:
            gc.collect()


if __name__ == "__main__":
    main()
