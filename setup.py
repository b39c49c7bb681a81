"""Build: compile the modules of `rillet._compiled` with Cython, or install interpreted without a C compiler.

Switches (environment):
  RILLET_REQUIRE_EXTENSIONS=1  a failing compilation fails the build
  RILLET_DISABLE_EXTENSIONS=1  do not compile at all
  RILLET_ONLY=a,b              compile just these modules (for work on one of them)
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SRC = Path("src/rillet")
REQUIRE = os.environ.get("RILLET_REQUIRE_EXTENSIONS", "") not in ("", "0")
DISABLE = os.environ.get("RILLET_DISABLE_EXTENSIONS", "") not in ("", "0")
NOTICE = (
    "rillet: no working C compiler was found, so the interpreted package is installed. "
    "It gives the same results, slower. Install gcc (or another C compiler) and the Python headers, "
    "then reinstall, for the compiled one."
)


def compiled_modules() -> list[str]:
    """Return the listed modules, narrowed by RILLET_ONLY."""
    listed = runpy.run_path(str(SRC / "_compiled.py"))["COMPILED"]
    only = [name for name in os.environ.get("RILLET_ONLY", "").split(",") if name]
    return [name for name in listed if not only or name in only]


class OptionalBuildExt(build_ext):
    """Compile, and where that cannot work fall back to the interpreted package, saying so once."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if REQUIRE:
                raise
            print(NOTICE, f"({error})", sep="\n", file=sys.stderr)
            self.extensions = []


def extensions() -> list[Extension]:
    """Return the extensions to build, translated to C under build/, never into src."""
    if DISABLE:
        return []
    try:
        from Cython.Build import cythonize
    except ModuleNotFoundError:
        if REQUIRE:
            raise
        return []
    wanted = [
        Extension(
            "rillet." + name.replace("/", "."),
            [str(SRC / f"{name}.py")],
            extra_compile_args=["-O2", "-fno-strict-overflow"],
        )
        for name in compiled_modules()
        if (SRC / f"{name}.py").exists()
    ]
    return cythonize(
        wanted,
        build_dir=os.environ.get("RILLET_C_DIR", "build/c"),
        include_path=["src"],
        nthreads=0,
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "boundscheck": True,
            "wraparound": False,
            "initializedcheck": False,
            "embedsignature": False,
            "cdivision": False,
        },
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
