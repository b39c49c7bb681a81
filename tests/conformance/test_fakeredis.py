"""fakeredis's own tests, with a rillet store in the place of fakeredis: how many pass, family by family.

    RILLET_SUITE_FAKEREDIS   the unpacked source distribution of fakeredis 2.40, from the package index
    its folder `packages`    what the tests import: pip install --no-deps --target packages pytest-asyncio valkey

Most of these tests have one form for a real server and one for fakeredis, with the same expectations. Here the second
form runs, and fakeredis_twin.py makes its clients: clients of a store in memory, without a socket. Tests for fakeredis
alone (`fake_only`, test_internals) and for other servers (Dragonfly, KiviDB) are left out. Each test counts twice, for
RESP2 and RESP3.

The tests also want the address of a real server, and ask for its version. For compat 7.0 that is the redis-server of
the machine, for newest a `rillet serve`.

Nothing of the suite is kept here: it runs in a copy in a temporary folder, with a free port in place of its 6390.
To count again: python -m tests.conformance.test_fakeredis twin|fake|real COMPAT FAMILY ...
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

import rillet
from tests.judge import running_redis
from tests.package.test_modes import ROOT
from tests.server.harness import running

VARIABLE = "RILLET_SUITE_FAKEREDIS"
TIMEOUT = 900
_VERSIONS = "test_mixins/test_specific_redis_versions"

# The files of each family of commands.
FAMILIES = {
    "strings": ["test_mixins/test_string_commands.py"],
    "lists": ["test_mixins/test_list_commands.py"],
    "sets": ["test_mixins/test_set_commands.py"],
    "hashes": ["test_mixins/test_hash_commands.py"],
    "sorted sets": ["test_mixins/test_sortedset_commands.py", "test_mixins/test_sortedset_zadd.py"],
    "streams": ["test_mixins/test_streams_commands.py", "test_mixins/test_stream_groups.py",
                "test_mixins/test_stream_trimming.py"],
    "keys": ["test_mixins/test_generic_commands.py", "test_mixins/test_generic_scan_commands.py"],
    "transactions": ["test_mixins/test_transactions_commands.py"],
    "channels": ["test_mixins/test_pubsub_commands.py", "test_keyspace_notifications.py"],
    "connection": ["test_mixins/test_connection_commands.py"],
    "server": ["test_mixins/test_server_commands.py"],
    "asyncio": ["test_async"],
    "streams, Redis 8": [f"{_VERSIONS}/test_redis_8_2_stream_ref_policy.py",
                         f"{_VERSIONS}/test_redis_8_4_xreadgroup_claim.py",
                         f"{_VERSIONS}/test_redis_8_6_idmp.py", f"{_VERSIONS}/test_redis_8_8_stream_cmds.py"],
    "other commands of Redis 8": [
        *(f"{_VERSIONS}/test_redis_{name}.py" for name in (
            "8_0_hash_expire", "8_4_digest_delex", "8_4_msetex", "8_8_increx", "8_8_zset_count", "8_10_himport",
            "8_8_array_commands",
        )),
        "test_subkey_notifications.py",
    ],
    "expiry of hash fields": ["test_mixins/test_hash_expire_commands.py"],
    "bitmaps": ["test_mixins/test_bitmap_commands.py"],
    "geo": ["test_mixins/test_geo_commands.py"],
    "ACL": ["test_mixins/test_acl_commands.py"],
    "scripts and functions": ["test_mixins/test_scripting_commands.py", "test_mixins/test_function_commands.py"],
}  # fmt: skip


@dataclass(frozen=True)
class Passed:
    """How many tests of a family run, and how many pass: with rillet, with fakeredis, and on a genuine server."""

    tests: int
    rillet: int
    fakeredis: int
    genuine: int | None = None


# For newest no genuine server was at hand.
RECORDED: dict[str, dict[str, Passed]] = {
    "7.0": {
        "strings": Passed(152, 152, 152, 152),
        "lists": Passed(164, 164, 164, 164),
        "sets": Passed(112, 104, 110, 110),
        "hashes": Passed(76, 76, 76, 76),
        "sorted sets": Passed(296, 296, 296, 296),
        "streams": Passed(197, 193, 197, 193),
        "keys": Passed(232, 232, 232, 232),
        "transactions": Passed(46, 46, 46, 46),
        "channels": Passed(47, 47, 47, 46),
        "connection": Passed(67, 61, 67, 65),
        "server": Passed(18, 10, 18, 18),
        "bitmaps": Passed(62, 62, 62, 62),
        "geo": Passed(52, 50, 50, 50),
        "ACL": Passed(18, 10, 18, 10),
        "asyncio": Passed(56, 56, 56, 56),
        "scripts and functions": Passed(236, 234, 236, 234),
    },
    "newest": {
        "streams": Passed(197, 197, 197),
        "streams, Redis 8": Passed(160, 160, 160),
        "hashes": Passed(80, 80, 80),
        "expiry of hash fields": Passed(96, 96, 96),
        "geo": Passed(52, 50, 50),
        "ACL": Passed(20, 18, 20),
        "asyncio": Passed(56, 56, 56),
        "other commands of Redis 8": Passed(318, 276, 318),
        "scripts and functions": Passed(236, 234, 236),
    },
}


def source() -> Path | None:
    """Return the folder of the suite, or None if the variable is not set."""
    named = os.environ.get(VARIABLE, "")
    return Path(named).resolve() if named else None


@contextmanager
def reference(compat: str, folder: Path) -> Iterator[int]:
    """Run the server whose version the tests ask for, and yield its port."""
    if compat == "7.0":
        with running_redis() as judge:
            yield judge.port
    else:
        with running(folder, "--compat", compat) as server:
            yield server.port


def lay_out(suite: Path, folder: Path, port: int) -> None:
    """Copy the suite into a folder, as if fakeredis was installed there; its tests find the server at the port."""
    for name in ("fakeredis", "test"):
        shutil.copytree(suite / name, folder / name)
    shutil.copy(suite / "pyproject.toml", folder)
    information = (suite / "PKG-INFO").read_text(encoding="utf-8")
    version = information.split("\nVersion: ", 1)[1].split("\n", 1)[0]
    (folder / f"fakeredis-{version}.dist-info").mkdir()
    (folder / f"fakeredis-{version}.dist-info" / "METADATA").write_text(information, encoding="utf-8")
    for module in (folder / "test").rglob("*.py"):
        module.write_text(module.read_text(encoding="utf-8").replace("6390", str(port)), encoding="utf-8")


def run(suite: Path, compat: str, family: str, what: str = "twin") -> tuple[int, int, dict[str, str]]:
    """Run a family against "twin" (rillet), "fake" (fakeredis) or "real" (the server).

    Return the number of tests that pass, the number that run, and the reason of each test that fails.
    """
    form = "real" if what == "real" else "fake"
    with TemporaryDirectory(prefix="rillet-fakeredis-") as name:
        folder = Path(name)
        (folder / "server").mkdir()
        with reference(compat, folder / "server") as port:
            lay_out(suite, folder, port)
            places = (folder, Path(rillet.__file__).parent.parent, ROOT, suite / "packages")
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "RILLET_TWIN_COMPAT": compat}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_asyncio", "-p", "no:cacheprovider",
                       "-m", f"{form} and not fake_only", "--timeout=60", "--junit-xml=outcome.xml",
                       *(["-p", "tests.conformance.fakeredis_twin"] if what == "twin" else []),
                       *(f"test/{file}" for file in FAMILIES[family])]  # fmt: skip
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
        outcome = folder / "outcome.xml"
        assert outcome.exists(), done.stdout + done.stderr
        return read_outcome(outcome.read_text(encoding="utf-8"))


def read_outcome(xml: str) -> tuple[int, int, dict[str, str]]:
    """Read pytest's JUnit file: the number of tests that passed, that ran, and the reason of each failure."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = next((one for one in case if one.tag in ("failure", "error")), None)
        if problem is not None:
            failed[name] = (problem.get("message") or "").replace("\n", " ")
        elif case.find("skipped") is None:
            passed.add(name)
    passed -= failed.keys()  # a test whose teardown failed occurs twice
    return len(passed), len(passed) + len(failed), failed


CASES = [(compat, family) for compat, families in RECORDED.items() for family in families]


@pytest.mark.slow
@pytest.mark.environment(VARIABLE)
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize(("compat", "family"), CASES)
def test_a_family_passes_as_many_tests_as_before(compat: str, family: str) -> None:
    suite = source()
    assert suite is not None
    passed, ran, failed = run(suite, compat, family)
    expected = RECORDED[compat][family]
    reasons = [f"  {name}: {why[:200]}" for name, why in failed.items()]
    report = "\n".join([f"{compat} {family}: {passed} of {ran} pass", *reasons])
    print(report)
    assert (passed, ran) == (expected.rillet, expected.tests), report


def row(compat: str, family: str, one: Passed) -> str:
    """Return a row of docs/instead-of-fakeredis.md."""
    genuine = "" if one.genuine is None else one.genuine
    return f"| {compat} | {family} | {one.tests} | {one.rillet} | {one.fakeredis} | {genuine} |"


def table() -> list[str]:
    """Return the rows of docs/instead-of-fakeredis.md, as recorded here."""
    return [row(compat, family, one) for compat, families in RECORDED.items() for family, one in families.items()]


# Calls of each row of the page's first table; rillet has what the row names if all of them run.
CALLS = {
    "strings, lists, sets, sorted sets, hashes, streams, channels, transactions":
        ["SET k v", "RPUSH l a", "SADD s a", "ZADD z 1 a", "HSET h f v", "XADD x * f v", "PUBLISH c m"],
    "Redis 8's commands on streams":
        ["XGROUP CREATE x8 g 0 MKSTREAM", "XADD x8 KEEPREF * f v", "XDELEX x8 IDS 1 1-1", "XACKDEL x8 g IDS 1 1-1",
         "XADD x8 IDMP p i * f v", "XCFGSET x8 IDMP-DURATION 10"],
    "scripts (EVAL) and functions": ["EVAL return(1) 0", "FUNCTION LIST"],
    "bitmaps, HyperLogLog, geo, SORT": ["SETBIT b 1 1", "PFADD p a", "GEOADD g 1 2 m", "SORT l ALPHA"],
    "users and permissions (ACL SETUSER)": ["ACL SETUSER bob on >x +@read"],
    "arrays of Redis 8.8": ["ARSET a 1 v"],
    "expiry of hash fields (HEXPIRE, HGETEX, HSETEX ...)":
        ["HEXPIRE h 9 FIELDS 1 f", "HGETEX h PERSIST FIELDS 1 f", "HSETEX h EX 9 FIELDS 1 f v", "HTTL h FIELDS 1 f"],
    "MSETEX, INCREX, DELEX, DIGEST": ["MSETEX 1 m v", "INCREX n", "DIGEST m", "DELEX m"],
    "HIMPORT": ["HIMPORT"],
    "modules: JSON and Bloom filters": ["JSON.SET j $ 1", "BF.ADD f a"],
    "modules: time series, other filters and sketches, vector sets": ["TS.ADD t * 1", "CF.ADD c a", "VCARD v"],
    "search": ["FT._LIST"],
}  # fmt: skip


def test_the_page_says_what_rillet_has() -> None:
    pytest.importorskip("lupa")
    page = (ROOT / "docs" / "instead-of-fakeredis.md").read_text(encoding="utf-8")
    cells = dict(line.split(" | ")[:2] for line in page.splitlines() if line.count(" | ") == 2)
    said = {name: cells[f"| {name}"] != "no" for name in CALLS}
    with rillet.open(compat="newest", modules=["json", "bloom"]) as store:
        assert said == {name: all(runs(store, call) for call in calls) for name, calls in CALLS.items()}


def runs(store: rillet.Store, call: str) -> bool:
    """Return whether the store runs a call; only an unknown command may be the reason if it does not."""
    try:
        store.execute(*call.split())
    except rillet.CommandError as error:
        if not str(error).startswith("ERR unknown command"):
            raise
        return False
    return True


def only(name: str) -> list[str]:
    """Return the commands that only one of the two has, as the page lists them; `*` stands for any end."""
    page = (ROOT / "docs" / "instead-of-fakeredis.md").read_text(encoding="utf-8")
    rows = page.split(f"| | only {name} |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [command.lower() for row in rows for command in re.findall("`([^`]+)`", row)]


def commands_of_rillet() -> set[str]:
    """Return the commands and subcommands of a store with both modules."""
    with rillet.open(compat="newest", modules=["json", "bloom"]) as store:
        listed = [name.decode() for name in store.execute("COMMAND", "LIST")]
        entries = store.execute("COMMAND", "INFO")
        inner = [sub[0].decode().replace("|", " ") for entry in entries for sub in entry[9]]
    return {*listed, *inner}


def commands_of_fakeredis(suite: Path) -> set[str]:
    """Return the commands that fakeredis declares, also those of packages that are not installed."""
    found: set[str] = set()
    for module in (suite / "fakeredis").rglob("*.py"):
        if module.parent.name == "server_specific_commands":  # those of Dragonfly
            continue
        nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            for call in function.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "command":
                    names = [ast.literal_eval(word.value) for word in call.keywords if word.arg == "name"]
                    names = names[0] if names and isinstance(names[0], list) else names or [function.name]
                    found.update(name.lower() for name in names)
    return found


def test_the_page_lists_commands_that_rillet_has_and_lacks() -> None:
    known = commands_of_rillet()
    assert [name for name in only("fakeredis") if fnmatch.filter(known, name)] == []
    assert [name for name in only("rillet") if not fnmatch.filter(known, name)] == []


@pytest.mark.environment(VARIABLE)
def test_the_page_lists_what_fakeredis_has_and_lacks() -> None:
    suite = source()
    assert suite is not None
    theirs, ours = commands_of_fakeredis(suite), commands_of_rillet()
    listed = only("fakeredis")
    assert [name for name in sorted(theirs - ours) if not any(fnmatch.fnmatch(name, one) for one in listed)] == []
    assert [name for name in listed if not fnmatch.filter(theirs, name)] == []
    assert [name for name in only("rillet") if fnmatch.filter(theirs, name)] == []


def test_the_page_has_the_recorded_numbers() -> None:
    page = (ROOT / "docs" / "instead-of-fakeredis.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| {compat} | " for compat in RECORDED))]
    assert rows == table()


def test_the_outcome_of_pytest_is_parsed() -> None:
    xml = (
        '<testsuites><testsuite><testcase classname="a" name="one"/><testcase classname="a" name="two"><failure '
        'message="no&#10;reply"/></testcase><testcase classname="a" name="three"><skipped/></testcase><testcase '
        'classname="a" name="four"/><testcase classname="a" name="four"><error message="teardown"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert read_outcome(xml) == (1, 3, {"a.two": "no reply", "a.four": "teardown"})


if __name__ == "__main__":
    folder = source()
    assert folder is not None, f"{VARIABLE} names no folder"
    for chosen in sys.argv[3:] or FAMILIES:
        good, total, reasons = run(folder, sys.argv[2], chosen, sys.argv[1])
        print(f"{chosen}: {good} of {total}", *(f"  {name}: {why[:160]}" for name, why in reasons.items()), sep="\n")
