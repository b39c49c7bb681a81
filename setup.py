"""Build: compile the modules of `rillet._compiled` with Cython, or install them interpreted if there is no compiler.

    python setup.py build --build-lib build/compiled      both speeds side by side: src stays interpreted
    pip install .                                          compiled, if there is a C compiler

Switches (environment):
  RILLET_REQUIRE_EXTENSIONS=1  fail if a module cannot be compiled
  RILLET_DISABLE_EXTENSIONS=1  compile nothing
  RILLET_ONLY=a,b              compile only these modules
  RILLET_C_DIR=folder          write the C files to this folder (default: build/c)

tools/declarations.py writes the .pxd files from the sources. A translator (tools/translator.py) for each core writes C,
and the C compiler follows at once. A module is built again if its key has changed: the hash of its source, of the
.pxd files that it reaches, and of the options. The keys are beside the C files.

The build compiles all modules or none: compiled modules rely on the class layout of each other, so if one fails, the
interpreted package is installed, from a wheel for all systems (py3-none-any). pip keeps the wheels that it builds from
a source distribution, so a later install compiles only with --no-cache-dir. The build never writes an extension into
src, so an editable install is interpreted.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import queue
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

SRC = Path("src/rillet")
C_DIR = Path(os.environ.get("RILLET_C_DIR", "build/c"))
DECLARED = C_DIR / "declared"  # what Cython reads
REQUIRE = os.environ.get("RILLET_REQUIRE_EXTENSIONS", "") not in ("", "0")
DISABLE = os.environ.get("RILLET_DISABLE_EXTENSIONS", "") not in ("", "0")
ONLY = [name for name in os.environ.get("RILLET_ONLY", "").split(",") if name]
_MODULES = runpy.run_path(str(SRC / "_compiled.py"))
LISTED: tuple[str, ...] = _MODULES["COMPILED"]
PLAIN: tuple[str, ...] = _MODULES["PLAIN"]
SHARED = "_cyutility"  # Cython's utility code, once for all modules
NOTICE = (
    "rillet: could not be compiled, so the interpreted package is installed: the same results, slower.\n"
    "rillet: for the compiled one install a C compiler and the Python headers (Debian: gcc python3-dev), then run:\n"
    "rillet: pip install --force-reinstall --no-deps --no-cache-dir git+https://github.com/rillet/rillet\n"
    "rillet: the reason was: {reason}"
)
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    "embedsignature": False,
    "cdivision": False,
    "auto_pickle": False,
    "emit_code_comments": False,
}
# Ordinary Python keeps its meaning: annotations are not C types, and a negative index counts from the end.
PLAIN_DIRECTIVES = {**DIRECTIVES, "annotation_typing": False, "wraparound": True}
# Modules with loops over nodes and bytes, and what every command runs.
HOT = ("structs/", "protocol/", "types/stream/", "commands/stream/", "commands/zset/", "commands/string/get",
       "commands/string/set", "keyspace/database", "runtime/command_finder", "runtime/dispatch",
       "runtime/effects")  # fmt: skip
# What -O2 adds to -O1 that typed code profits from, for nothing; the rest of -O2 takes three quarters more time.
INLINED = ("-finline-small-functions", "-findirect-inlining", "-fpartial-inlining", "-fstrict-aliasing",
           "-freorder-blocks-algorithm=stc")  # fmt: skip
PROBE = "#include <Python.h>\nint rillet_probe(void) { return PY_MAJOR_VERSION; }\n"
# What each C file includes first.
HEADERS = "#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n#include <structmember.h>\n#include <frameobject.h>\n"
CIMPORT = re.compile(r"^ *from +(?:cython\.cimports\.(rillet\.[\w.]+) +import|(rillet\.[\w.]+) +cimport)", re.MULTILINE)


def extensions() -> list[Extension]:
    """Return an extension for each listed module (narrowed by RILLET_ONLY), its source the .py file."""
    chosen = [name for name in LISTED if (not ONLY or name in ONLY) and (SRC / f"{name}.py").exists()]
    if DISABLE or not chosen:
        return []
    return [
        Extension(
            "rillet." + name.replace("/", "."),
            [str(SRC / f"{name}.py")],
            extra_compile_args=_compile_options(name),
            # Without the second option, the linker pads each of the 200 files by a page.
            extra_link_args=["-Wl,--strip-all", "-Wl,-z,noseparate-code"] if sys.platform == "linux" else [],
        )
        for name in (SHARED, *chosen)
    ]


def _compile_options(name: str) -> list[str]:
    """Return the compiler options: no debug information, and the lowest level at which the benchmarks lose nothing.

    -O3 for the columns of Arrow, -O2 for loops and for what every command runs, -O1 with inlining for other typed
    modules and for values and scripts without types, and -Og for other calls of Python's C API, in a third of the time
    of -O2.
    """
    if sys.platform == "win32":
        return []
    if name in PLAIN or name == SHARED:
        level = "-O1" if name.startswith(("types/", "scripting/", "commands/list/")) else "-Og"
    elif name.startswith(("columns/", "structs/bits", "structs/hyperloglog")):
        level = "-O3"
    else:
        level = "-O2" if name.startswith(HOT) else "-O1"
    return [level, *(INLINED if level == "-O1" else ()), "-g0", "-fno-strict-overflow"]


class BuildSources(build_py):  # type: ignore[misc]
    """Copy the sources, and remove files from the build folder that no longer have a source."""

    def run(self) -> None:
        """Copy, then remove old files: a renamed module must not stay in an old build folder."""
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib) / "rillet"
        for path in [*built.rglob("*.py"), *built.rglob("*.pxd"), *built.rglob("*.txt")]:
            if not (SRC / path.relative_to(built)).exists():
                path.unlink()
        for path in _extensions_in(built):
            name = path.relative_to(built).as_posix().split(".")[0]
            if DISABLE or name not in (*LISTED, SHARED):
                path.unlink()


class BuildExtensions(build_ext):  # type: ignore[misc]
    """Translate to C and compile. If that is impossible, build nothing and print one line."""

    extensions: list[Extension]
    parallel: int | None

    def run(self) -> None:
        """Build unless the install is editable: src stays interpreted."""
        if self.inplace or getattr(self, "editable_mode", False):
            print("rillet: src stays interpreted; `make setup` builds the compiled package beside it", file=sys.stderr)
            self.extensions = []
            return
        super().run()

    def build_extensions(self) -> None:
        """Probe the compiler, then translate and compile."""
        note = Path(self.build_lib) / "rillet" / "_not_compiled.txt"  # rillet/__init__.py warns if it is there
        note.unlink(missing_ok=True)
        try:
            self._probe()
            self._build()
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
        """Compile one line of C against Python.h, before the translation takes a minute; drop unknown options."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(PROBE)
            self.compiler.compile([str(source)], output_dir=folder)
            try:
                self.compiler.compile([str(source)], output_dir=folder, extra_postargs=["-Werror", *INLINED])
            except CompileError:  # another compiler than gcc
                for extension in self.extensions:
                    extension.extra_compile_args = [o for o in extension.extra_compile_args if o not in INLINED]

    def _build(self) -> None:
        """Build the modules whose keys have changed, the largest first."""
        subprocess.run([sys.executable, "-m", "tools.declarations", str(DECLARED)], check=True)
        keys = {extension.name: _key(extension) for extension in self.extensions}
        due = [extension for extension in self.extensions if self._is_due(extension, keys[extension.name])]
        if not due:
            return
        C_DIR.mkdir(parents=True, exist_ok=True)
        for level in {extension.extra_compile_args[0] for extension in due if extension.extra_compile_args}:
            self._precompile_headers(level)
        progress = Progress({extension.name: _weight(extension) for extension in due})
        jobs: queue.SimpleQueue[Extension] = queue.SimpleQueue()
        for extension in sorted(due, key=_weight, reverse=True):
            jobs.put(extension)
        failures: list[Exception] = []

        def work() -> None:
            with Translator() as translator:
                while not failures:
                    try:
                        extension = jobs.get_nowait()
                    except queue.Empty:
                        return
                    try:
                        translator.translate(extension)
                        self.build_extension(extension)
                        _key_file(extension).write_text(keys[extension.name])
                        progress.done(extension.name)
                    except Exception as error:
                        failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(min(self.parallel or os.cpu_count() or 1, len(due)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _is_due(self, extension: Extension, key: str) -> bool:
        """Return whether a module must be built, and point the extension to its C file."""
        extension.sources = [str(C_DIR / f"{extension.name}.c")]
        known = _key_file(extension)
        built = Path(self.get_ext_fullpath(extension.name)).exists()
        return bool(self.force) or not built or not known.exists() or known.read_text() != key

    def _precompile_headers(self, level: str) -> None:
        """Let gcc read Python's headers once for each level: it takes a seventh of the time of a module."""
        header = Path(self.build_temp) / level.strip("-") / "headers.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(HEADERS)
        chosen = [extension for extension in self.extensions if extension.extra_compile_args[:1] == [level]]
        command = [*self.compiler.compiler_so, *chosen[0].extra_compile_args]
        command += [f"-I{folder}" for folder in self.compiler.include_dirs]
        done = subprocess.run([*command, "-x", "c-header", str(header), "-o", f"{header}.gch"], capture_output=True)
        if done.returncode == 0:
            for extension in chosen:
                extension.extra_compile_args = [*extension.extra_compile_args, "-include", str(header)]


class Translator:
    """A process that translates modules to C, one after the other."""

    def __enter__(self) -> Translator:
        command = [sys.executable, "-m", "tools.translator", str(DECLARED)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def translate(self, extension: Extension) -> None:
        """Write the C file of a module. ValueError: the module has an error, which Cython has printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"c": extension.sources[0], **_job(extension)}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the translator ended"}')
        if "error" in answer:
            raise ValueError(answer["error"])


class Progress:
    """Prints the modules that are done and the seconds that are left, by the sizes of the sources."""

    def __init__(self, weights: dict[str, int]) -> None:
        self._weights = weights
        self._all, self._lines, self._left = len(weights), sum(weights.values()), sum(weights.values())
        self._started = self._printed = time.monotonic()
        self._lock = threading.Lock()
        print(f"rillet: {self._all} modules to compile", flush=True)

    def done(self, name: str) -> None:
        """Count a module; print a line at most every five seconds."""
        with self._lock:
            self._left -= self._weights.pop(name)
            now = time.monotonic()
            if now - self._printed < 5 and self._weights:
                return
            self._printed = now
            built, count = self._lines - self._left, self._all - len(self._weights)
            # Before a tenth is done, the modules that are half done falsify the rate.
            left = f", {(now - self._started) / built * self._left:.0f} s left" if 10 * built > self._lines else ""
            print(f"rillet: {count} of {self._all} modules compiled{left}", flush=True)


def _job(extension: Extension) -> dict[str, Any]:
    """Return what the translator needs of a module besides the path of its C file."""
    name = extension.name.removeprefix("rillet.").replace(".", "/")
    if name == SHARED:
        return {}
    directives = PLAIN_DIRECTIVES if name in PLAIN else DIRECTIVES
    return {"name": extension.name, "source": str(SRC / f"{name}.py"), "directives": directives}


def _weight(extension: Extension) -> int:
    """Return a measure of the time that a module takes: lines, and what each module costs beside them."""
    source = _job(extension).get("source")
    return 60 + (Path(source).read_bytes().count(b"\n") if source else 500)


def _key(extension: Extension) -> str:
    """Return the hash of all that a module is built from."""
    job = _job(extension)
    parts = [metadata.version("cython"), sys.version, Path("tools/translator.py").read_text(), json.dumps(job)]
    parts += extension.extra_compile_args
    parts += [os.environ.get(name, "") for name in ("CC", "CFLAGS", "LDFLAGS")]
    hashed = hashlib.sha256("\0".join(parts).encode())
    if "source" in job:
        source = DECLARED / job["source"]
        for path in (source, *sorted(_reached(source) | _reached(DECLARED / f"{extension.name}.pxd"))):
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


@functools.cache
def _reached(path: Path) -> frozenset[Path]:
    """Return the .pxd files that a file reaches by cimports, and the file itself if it is one."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        if path.suffix == ".pxd":
            found.add(path)
        text = path.read_text(encoding="utf-8")
        waiting += [DECLARED / f"{a or b}.pxd" for a, b in CIMPORT.findall(text)]
    return frozenset(found)


def _key_file(extension: Extension) -> Path:
    return C_DIR / f"{extension.name}.key"


def _extensions_in(folder: Path) -> list[Path]:
    """Return the extension modules below a build folder."""
    return [*folder.rglob("*.so"), *folder.rglob("*.pyd")]


def description() -> str:
    """Return README.md with absolute links: a package index resolves no relative ones."""
    text = Path("README.md").read_text(encoding="utf-8")
    for before, kind in (("](", "blob"), ('src="', "raw")):
        pattern = re.escape(before) + "(?!https?:|#)"
        text = re.sub(pattern, f"{before}https://github.com/rillet/rillet/{kind}/main/", text)
    return text


if __name__ == "__main__":
    setup(
        ext_modules=extensions(),
        cmdclass={"build_py": BuildSources, "build_ext": BuildExtensions},
        long_description=description(),
        long_description_content_type="text/markdown",
    )
