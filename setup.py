"""Build: compile the modules of `rillet._compiled` with Cython, or install them interpreted if there is no compiler.

    python setup.py build --build-lib build/compiled      both speeds side by side: src stays interpreted
    pip install .                                          compiled, if there is a C compiler

Switches (environment):
  RILLET_REQUIRE_EXTENSIONS=1  fail if a module cannot be compiled
  RILLET_DISABLE_EXTENSIONS=1  compile nothing
  RILLET_ONLY=a,b              compile only these modules
  RILLET_C_DIR=folder          write the C files to this folder (default: build/c)

The build compiles all modules or none: compiled modules rely on the class layout of each other, so if one fails, the
interpreted package is installed, from a wheel for all systems (py3-none-any). pip keeps the wheels that it builds from
a source distribution, so a later install compiles only with --no-cache-dir. The build never writes an extension into
src, so an editable install is interpreted.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SRC = Path("src/rillet")
REQUIRE = os.environ.get("RILLET_REQUIRE_EXTENSIONS", "") not in ("", "0")
DISABLE = os.environ.get("RILLET_DISABLE_EXTENSIONS", "") not in ("", "0")
ONLY = [name for name in os.environ.get("RILLET_ONLY", "").split(",") if name]
_MODULES = runpy.run_path(str(SRC / "_compiled.py"))
LISTED: tuple[str, ...] = _MODULES["COMPILED"]
PLAIN: tuple[str, ...] = _MODULES["PLAIN"]
NOTICE = (
    "rillet: could not be compiled, so the interpreted package is installed: the same results, slower.\n"
    "rillet: for the compiled one install a C compiler and the Python headers (Debian: gcc python3-dev), then run:\n"
    "rillet: pip install --force-reinstall --no-deps --no-cache-dir rillet\n"
    "rillet: the reason was: {reason}"
)
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    "embedsignature": False,
    "cdivision": False,
}
# Ordinary Python keeps its meaning: annotations are not C types, and a negative index counts from the end.
PLAIN_DIRECTIVES = {**DIRECTIVES, "annotation_typing": False, "wraparound": True}
PROBE = "#include <Python.h>\nint rillet_probe(void) { return PY_MAJOR_VERSION; }\n"


def extensions() -> list[Extension]:
    """Return an extension for each listed module (narrowed by RILLET_ONLY), its source the .py file."""
    if DISABLE:
        return []
    return [
        Extension(
            "rillet." + name.replace("/", "."),
            [str(SRC / f"{name}.py")],
            extra_compile_args=_compile_options(name),
            extra_link_args=["-Wl,--strip-all"] if sys.platform == "linux" else [],
        )
        for name in LISTED
        if (not ONLY or name in ONLY) and (SRC / f"{name}.py").exists()
    ]


def _compile_options(name: str) -> list[str]:
    """Return the compiler options: no debug information, -O3 for loops over bytes, -O1 without types."""
    if sys.platform == "win32":
        return []
    loops = name.startswith(("columns/", "structs/bits", "structs/hyperloglog"))
    level = "-O3" if loops else "-O1" if name in PLAIN else "-O2"
    return [level, "-g0", "-fno-strict-overflow"]


class BuildSources(build_py):  # type: ignore[misc]
    """Copy the sources, and remove modules from the build folder that no longer have a source."""

    def run(self) -> None:
        """Copy, then remove old modules: a renamed module must not stay in an old build folder."""
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib) / "rillet"
        for path in [*built.rglob("*.py"), *built.rglob("*.pxd")]:
            if not (SRC / path.relative_to(built)).exists():
                path.unlink()
        for path in _extensions_in(built):
            name = path.relative_to(built).as_posix().split(".")[0]
            if DISABLE or name not in LISTED:
                path.unlink()


class BuildExtensions(build_ext):  # type: ignore[misc]
    """Translate to C under build/c and compile. If that is impossible, build nothing and print one line."""

    extensions: list[Extension]
    parallel: int | None

    def run(self) -> None:
        """Build unless the install is editable: src stays interpreted."""
        if self.inplace or getattr(self, "editable_mode", False):
            print("rillet: src stays interpreted; `make setup` builds the compiled package beside it", file=sys.stderr)
            self.extensions = []
            return
        self.parallel = self.parallel or os.cpu_count()
        super().run()

    def build_extensions(self) -> None:
        """Probe the compiler, translate, compile."""
        note = Path(self.build_lib) / "rillet" / "_not_compiled.txt"  # rillet/__init__.py warns if it is there
        note.unlink(missing_ok=True)
        try:
            self._probe()
            self._translate()
            super().build_extensions()
        except Exception as error:
            if REQUIRE:
                raise
            for path in _extensions_in(Path(self.build_lib) / "rillet"):
                path.unlink()
            self.extensions = self.distribution.ext_modules = []
            wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
            if wheel is not None:
                wheel.root_is_pure = True
            reason = str(error).strip() or type(error).__name__
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(reason.splitlines()[0][:200] + "\n")
            print(NOTICE.format(reason=reason), file=sys.stderr)

    def _probe(self) -> None:
        """Compile one line of C against Python.h, before the translation takes half a minute."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            self.compiler.compile([str(source)], output_dir=folder)

    def _translate(self) -> None:
        """Translate each .py into a C file under build/c, unless that file is up to date."""
        from Cython.Build import cythonize

        plain = {"rillet." + name.replace("/", ".") for name in PLAIN}
        sources = {}
        for directives, chosen in (
            (DIRECTIVES, [extension for extension in self.extensions if extension.name not in plain]),
            (PLAIN_DIRECTIVES, [extension for extension in self.extensions if extension.name in plain]),
        ):
            translated = cythonize(  # type: ignore[no-untyped-call]
                chosen,
                build_dir=os.environ.get("RILLET_C_DIR", "build/c"),
                include_path=["src"],
                compiler_directives=directives,
                nthreads=self.parallel or 0,
                quiet=True,
            )
            sources.update({extension.name: extension.sources for extension in translated})
        for extension in self.extensions:
            extension.sources = sources[extension.name]


def _extensions_in(folder: Path) -> list[Path]:
    """Return the extension modules below a build folder."""
    return [*folder.rglob("*.so"), *folder.rglob("*.pyd")]


if __name__ == "__main__":  # the translation's worker processes may import this file
    setup(ext_modules=extensions(), cmdclass={"build_py": BuildSources, "build_ext": BuildExtensions})
