"""The module of the guide (docs/modules.md) does what the guide's comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rillet
from tests.package.test_docs import programs
from tests.package.test_modes import ROOT

GUIDE = ROOT / "docs" / "modules.md"
_EXPECTED = re.compile(r"^(store\.execute\(.*?\)) +# (.+)$", re.MULTILINE)


def test_the_type_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module, use = programs(GUIDE)[1:3]
    (tmp_path / "counters.py").write_text(module)
    names: dict[str, object] = {"rillet": rillet}
    exec(compile(use, "modules.md", "exec"), names)
    store = names["store"]
    assert isinstance(store, rillet.Store)
    assert store.execute("peak.get", "copy") == [2, 5]
    with pytest.raises(rillet.CommandError, match="^ERR value is not an integer$"):
        store.execute("peak.add", "hits", "x")
    store.close()
    with rillet.open("data", modules=["counters.py"]) as again:
        assert again.execute("peak.get", "hits") == [2, 5]


def test_the_replies_in_the_guide(tmp_path: Path) -> None:
    (tmp_path / "counters.py").write_text(programs(GUIDE)[1])
    with rillet.open(modules=["bloom", "json", tmp_path / "counters.py"]) as store:
        expected = _EXPECTED.findall(GUIDE.read_text())
        assert len(expected) >= 6
        for call, reply in expected:
            assert repr(eval(call, {"store": store})) == reply, call


def test_the_other_programs_of_the_guide_are_modules(tmp_path: Path) -> None:
    head = "from rillet.modules import *\nmodule = Module('counters', 1)\n"
    for program in programs(GUIDE)[3:]:
        (tmp_path / "part.py").write_text(head + program)
        with rillet.open(modules=[tmp_path / "part.py"]) as store:
            assert store.execute("MODULE", "LIST")[0][1] == b"counters"
