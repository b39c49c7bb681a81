"""Building and installing: compiled, without a C compiler, and with the build's switches.

What depends on pip goes through pip into a folder; for the rest setup.py runs alone, in a third of the time. One small
module stands for all of them, in `make test-long`: the build of all is what the compiled run of this suite tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rillet
from rillet._compiled import COMPILED
from tests.package.test_data_files import data_files
from tests.package.test_modes import ROOT, SRC, built_extensions

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None and shutil.which("cc") is None, reason="there is no C compiler"
)

# Plain, so that its options are those of the utility code.
MODULE = "persistence/file_status"
NOTICE = "could not be compiled, so the interpreted package is installed"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what the build reads, so that nothing is built in the tree under test."""
    return copied(tmp_path / "sources")


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A package that was installed without a compiler, and what pip printed."""
    folder = tmp_path_factory.mktemp("without-compiler")
    done = pip_install(copied(folder / "sources"), folder / "installed", CC="/nonexistent/cc")
    assert done.returncode == 0, done.stdout
    return folder / "installed", done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Sources with one module compiled into build/lib, and what the build printed."""
    sources = copied(tmp_path_factory.mktemp("compiled") / "sources")
    done = built(sources, RILLET_ONLY=MODULE, RILLET_REQUIRE_EXTENSIONS="1")
    assert done.returncode == 0, done.stdout
    return sources, done.stdout


def copied(copy: Path) -> Path:
    """Copy what the build reads."""
    pytest.importorskip("setuptools")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (copy / "tools").mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("tools/declarations.py", "tools/translator.py"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def pip_install(sources: Path, target: Path, *options: str, **switches: str) -> subprocess.CompletedProcess[str]:
    """Install with the environment's own setuptools and Cython, verbosely, under the switches; make no .pyc files."""
    command = [sys.executable, "-m", "pip", "install", "-v", "--no-build-isolation", "--no-deps", "--no-index"]
    command.append("--no-compile")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_NO_CACHE_DIR")}
    return subprocess.run(
        [*command, *options, "--disable-pip-version-check", "--target", str(target), str(sources)],
        env={**environment, **switches},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def built(sources: Path, **switches: str) -> subprocess.CompletedProcess[str]:
    """Build into build/lib without pip, under the switches."""
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", "build/lib"]
    return subprocess.run(command, cwd=sources, env={**os.environ, **switches}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)  # fmt: skip


def info(target: Path) -> str:
    """Return the first line of `python -m rillet info` of the installed package."""
    command = [sys.executable, "-m", "rillet", "info"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    return subprocess.check_output(command, cwd=target.parent, env=environment, text=True).splitlines()[0]


def test_without_a_compiler_the_install_is_interpreted_and_says_so_once(without_compiler: tuple[Path, str]) -> None:
    installed, printed = without_compiler
    assert printed.count(NOTICE) == 1
    assert built_extensions(installed / "rillet") == set()
    assert data_files(installed / "rillet") == data_files(SRC)
    assert "interpreted: same results, but slower" in info(installed)


def test_an_install_without_a_compiler_warns_once_at_first_use(
    without_compiler: tuple[Path, str], tmp_path: Path
) -> None:
    program = "import rillet; rillet.StreamID; rillet.open().close(); rillet.open().close()"
    environment = {**os.environ, "PYTHONPATH": str(without_compiler[0])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning: rillet runs interpreted") == 1


@pytest.mark.long
@pytest.mark.timeout(900)  # pip builds twice
@needs_compiler
def test_the_remedy_of_the_warning_works_although_pip_keeps_the_interpreted_wheel(
    sources: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=sources, check=True, timeout=120, capture_output=True)
    # pip looks for a kept wheel only if the package is given by its name.
    named, switches = Path("rillet"), {"PIP_CACHE_DIR": str(tmp_path / "cache"), "PIP_FIND_LINKS": str(tmp_path)}
    first = pip_install(named, tmp_path / "1", CC="false", **switches)
    assert first.returncode == 0, first.stdout
    assert "-py3-none-any.whl" in first.stdout
    assert data_files(tmp_path / "1" / "rillet") == data_files(SRC)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "1")}
    told = subprocess.run([sys.executable, "-c", "import rillet; rillet.StreamID"], env=environment, cwd=tmp_path,
                          capture_output=True, text=True, check=True).stderr  # fmt: skip
    remedy = re.search(r"then run: pip install (.*) \S+$", told, re.MULTILINE)
    assert remedy is not None
    kept = pip_install(named, tmp_path / "2", RILLET_ONLY=MODULE, **switches)
    assert built_extensions(tmp_path / "2" / "rillet") == set(), kept.stdout
    done = pip_install(named, tmp_path / "3", *remedy[1].split(), RILLET_ONLY=MODULE, **switches)
    assert built_extensions(tmp_path / "3" / "rillet") == {MODULE}, done.stdout


def test_a_required_compilation_fails_the_build(sources: Path) -> None:
    done = built(sources, CC="/nonexistent/cc", RILLET_REQUIRE_EXTENSIONS="1")
    assert done.returncode != 0
    assert NOTICE not in done.stdout
    assert built_extensions(sources / "build" / "lib" / "rillet") == set()


@pytest.mark.long
@needs_compiler
def test_a_module_that_does_not_compile_takes_all_of_them_back(compiled: tuple[Path, str], tmp_path: Path) -> None:
    """Compiled modules lay out each other's classes, so half a build would not even import."""
    sources = tmp_path / "sources"
    shutil.copytree(compiled[0], sources)
    with (sources / "src" / "rillet" / "structs" / "lzf.py").open("a") as source:
        source.write("\n\n@cython.cclass\nclass Nowhere(Missing): ...\n")
    done = built(sources, RILLET_ONLY=f"{MODULE},structs/lzf")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(NOTICE) == 1
    assert built_extensions(sources / "build" / "lib" / "rillet") == set()


@pytest.mark.skipif(not rillet.compiled(), reason="looks at the build under test")
def test_the_build_under_test_has_what_is_listed_and_left_nothing_in_src() -> None:
    assert set(COMPILED) <= built_extensions(Path(rillet.__file__).parent)
    assert not [path for path in SRC.rglob("*") if path.suffix in {".c", ".so"}]


@pytest.mark.long
@needs_compiler
def test_what_is_listed_is_compiled_and_nothing_is_written_into_src(compiled: tuple[Path, str]) -> None:
    assert MODULE in COMPILED
    sources, printed = compiled
    assert NOTICE not in printed
    assert built_extensions(sources / "build" / "lib" / "rillet") == {MODULE}
    assert not [path for path in (sources / "src").rglob("*") if path.suffix in {".c", ".so"}]


def test_an_in_place_build_leaves_src_interpreted(sources: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "src stays interpreted" in done.stderr
    assert built_extensions(sources / "src" / "rillet") == set()


def test_the_build_folder_follows_the_sources_and_a_disabled_compilation_is_no_surprise(sources: Path) -> None:
    source, folder = sources / "src" / "rillet", sources / "build" / "lib" / "rillet"
    for name in ("gone.py", "gone.txt", "changed.txt"):
        (source / name).write_text("# end\n")
    first = built(sources, RILLET_DISABLE_EXTENSIONS="1")
    assert first.returncode == 0, first.stdout
    assert NOTICE not in first.stdout
    assert (folder / "gone.py").exists()
    assert data_files(folder) == data_files(source)
    assert built_extensions(folder) == set()
    (source / "gone.py").unlink()
    (source / "gone.txt").unlink()
    (source / "changed.txt").write_text("=a\n# end\n")
    assert built(sources, RILLET_DISABLE_EXTENSIONS="1").returncode == 0
    assert not (folder / "gone.py").exists()
    assert data_files(folder) == data_files(source)
