"""The package's face: its version, its lazy names, the console script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import rillet
import rillet.aio
import rillet.records
from rillet import errors
from rillet.cli import info, main
from rillet.store import INTERNAL, aio, internal_names
from rillet.types.compat import COMPATS
from tests.package.test_modes import ROOT

FOLDER = str(Path(rillet.__file__).resolve().parent.parent)


def test_version_is_that_of_the_installed_package() -> None:
    try:
        assert version("rillet") == rillet.__version__
    except PackageNotFoundError:
        assert rillet.__version__.count(".") == 2


def test_every_public_name_is_there() -> None:
    for name in rillet.__all__:
        assert getattr(rillet, name) is not None
        assert name in dir(rillet)


def test_dir_shows_the_public_names_only() -> None:
    assert {name for name in dir(rillet) if not name.startswith("__")} == set(rillet.__all__) - {"__version__"}
    assert len(rillet.__all__) == len(set(rillet.__all__))


def test_dir_of_an_object_shows_no_names_that_are_for_rillet_alone() -> None:
    with rillet.open() as store:
        stream = store.stream("orders")
        stream.add({"n": 1})
        group = stream.group("billing")
        consumer = group.consumer("one")
        parts = store.partitioned("parts", partitions=2, by="n")
        asyncio = store.aio()
        objects: list[object] = [
            store, asyncio, stream, asyncio.stream("orders"), stream.last(), group, consumer, consumer.read()[0],
            store.consumer("billing", "one", streams=["orders"]), parts, parts.group("billing"),
            store.subscribe("news"),
        ]  # fmt: skip
        shown = {type(one).__name__: set(dir(one)) for one in objects}
    assert {"stream", "execute", "close", "url"} <= shown["Store"] & shown["AsyncStore"]
    for one in objects:
        hidden = internal_names(type(one))
        assert hidden
        assert hidden.isdisjoint(shown[type(one).__name__])
    listed = {name for names in INTERNAL.values() for name in names.split()}
    assert {name for one in objects for name in internal_names(type(one)) if hasattr(one, name)} == listed
    assert not shown["Store"] & {"transport", "run_many", "may_wait", "replace_transport", "id_of", "observer"}


@pytest.mark.parametrize("name", ["AsyncStore", "PendingEntry", "LogCorrupt"])
def test_a_name_that_has_moved_still_works(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"rillet.{name} ends with .*: use rillet.\w+.{name}$"):
        assert getattr(rillet, name).__name__ == name
    assert name not in dir(rillet)
    with pytest.raises(AttributeError, match="has no attribute 'TypeVar'"):  # errors.py has it
        _ = rillet.TypeVar


def test_the_page_about_stability_lists_the_public_names() -> None:
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    table = text.split("| `rillet.` | |\n", 1)[1].split("\n\n", 1)[0]
    listed = re.findall(r"`(\w+)`", " ".join(row.split(" | ")[1] for row in table.splitlines()[1:]))
    assert sorted(listed) == sorted(rillet.__all__)
    for module, public in ((rillet.aio, rillet.aio.__all__), (rillet.records, rillet.records.__all__),
                           (errors, _errors() - set(rillet.__all__))):  # fmt: skip
        (row,) = re.findall(rf"^\| `{module.__name__}`[^|]*\|(.*)\|$", text, re.MULTILINE)
        assert sorted(re.findall(r"`(\w+)`", row)) == sorted(public)
        assert all(getattr(module, name) is not None for name in public)


def _errors() -> set[str]:
    return {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}


def test_the_public_modules_share_no_name() -> None:
    several: list[set[str]] = [set(rillet.__all__), set(rillet.aio.__all__), set(rillet.records.__all__)]
    assert sum(map(len, several)) == len(several[0] | several[1] | several[2])
    assert _errors().isdisjoint(several[1] | several[2])


def test_every_class_of_the_api_is_public() -> None:
    asyncio = {name for name in vars(aio) if name.startswith("Async")} - {"AsyncCalls", "AsyncIterator"}
    assert asyncio <= set(rillet.aio.__all__)
    assert {"RilletError", "CommandError", "StoreError"} <= _errors() & set(rillet.__all__)


def test_what_the_api_returns_accepts_and_raises_is_public() -> None:
    for name in ("Codec", "IDLike", "NoConnection", "NotSent", "Position", "StoreServer"):
        assert name in rillet.__all__
        assert getattr(rillet, name) is not None

    def at(where: rillet.Position, exact: rillet.IDLike) -> rillet.records.Recovery | rillet.StoreServer | None:
        return None

    assert set(get_type_hints(at)) == {"where", "exact", "return"}
    assert datetime in get_args(rillet.Position)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rillet' has no attribute 'opened': more names are in rillet.aio"):
        _ = rillet.opened


def test_importing_the_package_imports_nothing_of_it() -> None:
    """Nor does `compiled`, which a server calls at its start."""
    code = "import sys, rillet; rillet.compiled(); print(*(name for name in sys.modules if name.startswith('rillet.')))"
    environment = {**os.environ, "PYTHONPATH": FOLDER}
    told = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert told.strip() == "rillet._compiled"


def test_a_server_does_without_the_store() -> None:
    """A start of `rillet serve` would take a fifth longer."""
    code = "import sys, rillet.server.server; rillet.compiled(); print('rillet.store' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": FOLDER}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == "False"


def test_info_tells_the_speed_and_the_optional_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"rillet {rillet.__version__}, {'compiled (' if rillet.compiled() else ''}")
    assert {line.split()[0] for line in rest} == {"package", "python", *info.OPTIONAL, *info.PROGRAMS}


def test_interpreted_info_says_how_to_get_the_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "by_speed", lambda: ([], ["structs/listpack"]))
    assert "install a C compiler and the Python headers (Debian: gcc python3-dev)" in info.speed()
    monkeypatch.setattr(info, "by_speed", lambda: (["structs/rax"], ["structs/listpack"]))
    assert info.speed() == "mixed: 1 modules compiled, interpreted: structs/listpack"


def test_version_option_tells_the_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    speed = "compiled" if rillet.compiled() else "interpreted"
    assert capsys.readouterr().out == f"rillet {rillet.__version__} ({speed})\n"


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "rillet serve" in capsys.readouterr().out


def test_serve_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    usage = capsys.readouterr().out
    assert usage.startswith("usage: rillet serve [redis.conf]")
    assert all(name in usage for name in COMPATS)


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["srve"])
    assert ended.value.code == 2
    assert "srve" in capsys.readouterr().err
