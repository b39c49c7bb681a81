"""Commands of modules: their declaration, effects, calls of other commands, blocking, timers, events and settings."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.errors import CommandError
from rillet.modules import KEEP_WAITING, Context, Module, ModuleType
from rillet.modules.loading import load_module
from rillet.modules.manager import LoadError
from tests.modules.ends import Bench, declared
from tests.modules.redis_modules import twin


class Number(ModuleType):
    name = "number-tp"

    def rdb_save(self, out: Any, value: Any) -> None:
        out.signed(value[0])

    def rdb_load(self, source: Any, version: int) -> Any:
        return [source.signed()]


# -- declaration -------------------------------------------------------------------------------------


def test_a_declared_command_is_in_command_info_docs_list_and_getkeys() -> None:
    module = Module("t", 2)

    @module.command(
        "t.add",
        arity=-3,
        flags="write deny-oom fast",
        keys=(1, 1, 1),
        syntax="key amount [amount ...]",
        complexity="O(N)",
        categories="write fast",
        since="1.2.0",
    )
    def add(context: Context, argv: list[bytes]) -> None:
        """Add amounts.

        More text.
        """

    bench = Bench(module)
    info = bench("COMMAND", "INFO", "T.ADD")[0]
    assert info[:7] == [b"t.add", -3, [b"write", b"denyoom", b"module", b"fast"], 1, 1, 1, [b"@write", b"@fast"]]
    docs = dict(zip(*[iter(bench("COMMAND", "DOCS", "t.add")[1])] * 2, strict=True))
    assert docs[b"summary"] == b"Add amounts."
    assert docs[b"group"] == b"module"
    assert docs[b"module"] == b"t"
    assert docs[b"since"] == b"1.2.0"
    assert len(docs[b"arguments"]) == 2
    assert bench("COMMAND", "LIST", "FILTERBY", "MODULE", "t") == [b"t.add"]
    assert b"t.add" in bench("COMMAND", "LIST")
    assert bench("COMMAND", "GETKEYS", "t.add", "k", 1) == [b"k"]
    with pytest.raises(CommandError, match="wrong number of arguments for 't.add' command"):
        bench("t.add", "k")
    assert b"cmdstat_t.add:calls=0" in bench("INFO", "commandstats")


def test_a_command_is_visible_under_every_compat() -> None:
    module = Module("t")
    module.command("t.run", since="99.0.0")(lambda context, argv: "OK")
    bench = Bench(module, compat="7.0")
    assert bench("t.run") == b"OK"


def test_an_invalid_declaration_is_refused_completely() -> None:
    for options in ({"flags": "nosuch"}, {"keys": (1, 1, 1), "arity": 1}, {"flags": "write readonly"}):
        bench = Bench()
        module = Module("t", 1)
        module.type(Number)
        module.command("t.fine")(lambda context, argv: 1)
        module.command("t.run", **options)(lambda context, argv: 1)
        with pytest.raises(LoadError):
            load_module(bench.engine, module)
        assert bench("MODULE", "LIST") == []
        assert not bench.engine.settings.module_types
        with pytest.raises(CommandError, match="unknown command"):
            bench("t.fine")


def test_names_that_exist_are_refused() -> None:
    bench = Bench(declared(lambda context, argv: 1))
    for module in (
        Module("t"),
        _with_command("u", "t.run"),
        _with_command("u", "get"),
        _with_command("u", "t.run|sub"),
    ):
        with pytest.raises(LoadError):
            load_module(bench.engine, module)
    one, other = Module("a"), Module("b")
    one.type(Number)
    other.type(Number)
    load_module(bench.engine, one)
    with pytest.raises(LoadError, match="already defined"):
        load_module(bench.engine, other)


def _with_command(name: str, command: str) -> Module:
    module = Module(name)
    module.command(command, arity=-2)(lambda context, argv: 1)
    return module


# -- effects -----------------------------------------------------------------------------------------


def test_a_command_logs_what_it_replicates_in_order() -> None:
    def run(context: Context, argv: list[bytes]) -> Any:
        context.call("SET", "a", 1)
        context.replicate("RPUSH", "log", 2.5, b"x")
        context.call("INCR", "n", replicate=False)
        context.replicate_verbatim()
        return context.call("GET", "n")

    bench = Bench(declared(run, flags="write"))
    assert bench("t.run", "w") == b"1"
    assert bench.log() == ["MULTI", "SET a 1", "RPUSH log 2.5 x", "t.run w", "EXEC"]
    assert bench.engine.dirty == 4
    bench("SET", "other", 1)
    assert bench.log() == ["SET other 1"]


def test_a_command_that_replicates_nothing_is_not_logged() -> None:
    bench = Bench(declared(lambda context, argv: context.call("SET", "a", 1, replicate=False), flags="write"))
    assert bench("t.run") == b"OK"
    assert bench.log() == []


def test_inside_exec_the_effects_are_part_of_the_transaction() -> None:
    bench = Bench(declared(lambda context, argv: [context.in_transaction, context.call("INCR", "n")], flags="write"))
    for words in (["MULTI"], ["t.run"], ["SET", "x", 1], ["t.run"]):
        bench(*words)
    assert bench("EXEC") == [[1, 1], b"OK", [1, 2]]
    assert bench.log() == ["MULTI", "INCR n", "SET x 1", "INCR n", "EXEC"]


def test_a_replayed_command_logs_nothing_and_knows_it() -> None:
    seen: list[bool] = []

    def run(context: Context, argv: list[bytes]) -> Any:
        seen.append(context.replaying)
        context.call("INCR", "n")
        context.replicate_verbatim()

    bench = Bench(declared(run, flags="write"))
    session = bench.engine.session(trusted=True)
    bench.raw("t.run", session=session)
    assert seen == [True]
    assert bench.log() == []
    assert bench("GET", "n") == b"1"


def test_watchers_notice_a_change_of_a_modules_key() -> None:
    module = declared(lambda context, argv: context.key(argv[1]).set(Number, [1]), flags="write")
    module.type(Number)
    bench = Bench(module)
    bench("WATCH", "k")
    bench.raw("t.run", "k", session=bench.engine.session())
    bench("MULTI")
    bench("PING")
    assert bench("EXEC") is None


def test_keys_of_a_context() -> None:
    module = Module("t")
    module.type(Number)

    @module.command("t.keys", arity=1, flags="write")
    def keys(context: Context, argv: list[bytes]) -> Any:
        key = context.key(b"k")
        facts = [key.exists, key.type, key.get(Number)]
        key.set(Number, [7])
        key.expires_at = context.now_ms + 50_000
        facts += [key.exists, key.type, key.get(Number)[0], key.expires_at is not None]
        key.set(Number, [8])
        facts.append(key.expires_at)
        key.expires_at = context.now_ms + 50_000
        key.expires_at = None
        facts.append(key.expires_at)
        facts += [
            context.in_database(3).key(b"k").exists,
            key.delete(),
            key.delete(unlink=True),
            sorted(context.all_keys()),
        ]
        return [fact.encode() if isinstance(fact, str) else fact for fact in facts]

    bench = Bench(module)
    assert bench("t.keys") == [0, b"none", None, 1, b"number-tp", 7, 1, None, None, 0, 1, 0, []]
    bench.engine.check()


def test_values_outlive_eviction_expiry_and_flushes() -> None:
    freed: list[Any] = []
    unlinked: list[Any] = []

    class Watched(Number):
        name = "watchd-tp"

        def free(self, value: Any) -> None:
            freed.append(value[0])

        def unlink(self, place: Any, value: Any) -> None:
            unlinked.append((place, value[0]))

    module = declared(lambda context, argv: context.key(argv[1]).set(Watched, [int(argv[2])]), flags="write")
    module.type(Watched)
    bench = Bench(module)
    for number in range(8):
        bench("t.run", f"k{number}", number)
    bench("RENAME", "k0", "new")  # the value lives on under another name
    assert unlinked == [((0, b"k0"), 0)]
    assert freed == []
    bench("DEL", "new")
    bench("UNLINK", "k1")
    bench("SET", "k2", "x")
    bench("t.run", "k3", 33)
    bench("PEXPIRE", "k4", 0)
    bench("PEXPIREAT", "k5", 1)
    assert freed == [0, 1, 2, 3, 4, 5]
    assert [key for (_, key), _ in unlinked[1:]] == [b"new", b"k1", b"k2", b"k3", b"k4", b"k5"]
    bench("FLUSHALL")
    assert sorted(freed) == [0, 1, 2, 3, 4, 5, 6, 7, 33]
    bench.engine.check()


# -- blocking ----------------------------------------------------------------------------------------


def test_clients_that_wait_for_a_key_are_served_in_order() -> None:
    def run(context: Context, argv: list[bytes]) -> Any:
        def serve(context: Context, key: bytes) -> Any:
            if context.call("LLEN", key) < 2:
                return KEEP_WAITING
            return [context.call("LPOP", key), context.call("LPOP", key)]

        return context.block_on_keys(argv[1:], serve, on_timeout=lambda context: b"late")

    bench = Bench(declared(run, flags="write"))
    first, second = bench.engine.session(), bench.engine.session()
    assert bench.raw("t.run", "a", "b", session=first) == bench.raw("t.run", "a", session=second) == b""
    bench("RPUSH", "a", 1)
    assert first.blocked is not None
    bench("DEL", "a")
    bench("RPUSH", "a", 1, 2, 3)
    assert first.out.take_bytes() == b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n"
    assert second.blocked is not None
    assert bench.log()[-4:] == ["MULTI", "LPOP a", "LPOP a", "EXEC"]
    assert bench("CLIENT", "UNBLOCK", second.id) == 1
    assert second.out.take_bytes() == b"$4\r\nlate\r\n"
    assert not bench.engine.modules.loaded["t"].waiting
    bench.engine.check()


def test_blocking_inside_a_transaction_is_an_error() -> None:
    bench = Bench(declared(lambda context, argv: context.block()))
    bench("MULTI")
    bench("t.run")
    assert str(bench("EXEC")[0]) == "ERR Blocking module command called from transaction"


def test_a_thread_replies_and_runs_commands_in_the_engine() -> None:
    def run(context: Context, argv: list[bytes]) -> Any:
        blocked = context.block()

        def work() -> None:
            done = threading.Event()
            blocked.post(lambda context: context.call("SET", "from-thread", 1))
            blocked.post(lambda context: done.set())
            done.wait(20)
            blocked.unblock(b"value", lambda context, value: [value, context.call("GET", "from-thread")])
            blocked.unblock(b"too late")

        threading.Thread(target=work).start()
        return blocked

    with rillet.open(modules=[declared(run, flags="write")]) as store:
        assert store.execute("t.run") == [b"value", b"1"]
        assert store.execute("PING") in (b"PONG", "PONG")


def test_a_client_that_left_gets_nothing_and_the_module_is_notified() -> None:
    handles: list[Any] = []
    gone: list[bool] = []

    def run(context: Context, argv: list[bytes]) -> Any:
        handles.append(context.block(on_disconnect=lambda context: gone.append(True)))
        return handles[-1]

    bench = Bench(declared(run))
    session = bench.engine.session()
    bench.raw("t.run", session=session)
    assert handles[0].waits
    bench.engine.close_session(session)
    assert gone == [True]
    assert not handles[0].waits
    handles[0].unblock(1)
    bench.engine.services.run_jobs()
    assert session.out.take_bytes() == b""


def test_a_timeout_is_null_without_a_function_and_cannot_be_forced() -> None:
    bench = Bench(declared(lambda context, argv: context.block(timeout_ms=1)))
    assert bench.raw("t.run") == b""
    assert bench.engine.session().id
    assert bench.raw("CLIENT", "UNBLOCK", bench.session.id, session=bench.engine.session()) == b":0\r\n"
    time.sleep(0.002)
    bench.engine.blocking.time_has_come(bench.session)
    assert bench.session.out.take_bytes() == b"$-1\r\n"


# -- timers and events -------------------------------------------------------------------------------


def test_timers_of_a_store_in_memory_and_in_a_directory(tmp_path: Path) -> None:
    for path in (None, tmp_path / "store"):
        with rillet.open(path, modules=[twin("timer")]) as store:
            for _ in range(5):
                store.execute("test.createtimer", 1, "n")
            number = store.execute("test.createtimer", 100_000, "never")
            assert store.execute("test.gettimer", number)[0] == b"never"
            deadline = time.monotonic() + 20
            while store.execute("GET", "n") != b"5" and time.monotonic() < deadline:
                threading.Event().wait(0.001)
            assert store.execute("GET", "n") == b"5"
            assert store.execute("test.stoptimer", number) == 1
            assert store.execute("test.stoptimer", number) == 0


def test_the_effects_of_a_timer_are_logged_together() -> None:
    def fire(context: Context, data: Any) -> None:
        context.call("INCR", data)
        context.call("INCR", data)

    bench = Bench(declared(lambda context, argv: context.timer(0, fire, b"n")))
    bench("t.run")
    bench.engine.services.run_jobs()
    assert bench.log() == ["MULTI", "INCR n", "INCR n", "EXEC"]


def test_listeners_hear_events_that_nobody_subscribed_to() -> None:
    module = Module("t")
    heard: list[tuple[str, bytes, bytes]] = []
    for classes in ("g", "$", "x", "d", "m", "n"):
        module.on_event(classes)(lambda context, event, key, classes=classes: heard.append((classes, event, key)))
    module.command("t.notify", arity=2)(lambda context, argv: context.notify("d", "custom", argv[1]))
    bench = Bench(module)
    bench("SET", "k", 1)
    bench("DEL", "k")
    bench("GET", "missing")
    bench("t.notify", "k")
    assert heard == [
        ("n", b"new", b"k"),
        ("$", b"set", b"k"),
        ("g", b"del", b"k"),
        ("m", b"keymiss", b"missing"),
        ("d", b"custom", b"k"),
    ]
    assert bench("CONFIG", "GET", "notify-keyspace-events") == [b"notify-keyspace-events", b""]


def test_a_custom_event_is_published() -> None:
    bench = Bench(declared(lambda context, argv: context.notify("d", "custom", b"k")), notify_keyspace_events="Kd")
    listener = bench.engine.session()
    bench.raw("PSUBSCRIBE", "*", session=listener)
    bench("t.run")
    assert b"__keyspace@0__:k\r\n$6\r\ncustom" in listener.out.take_bytes()


def test_a_listener_is_not_called_for_its_own_events() -> None:
    module = Module("t")
    calls: list[bytes] = []

    @module.on_event("$")
    def on_string(context: Context, event: bytes, key: bytes) -> None:
        calls.append(key)
        context.call("SET", key + b"x", 1)

    bench = Bench(module)
    bench("SET", "k", 1)
    assert calls == [b"k"]
    assert bench("EXISTS", "kx", "kxx") == 1
    assert bench.log() == ["MULTI", "SET kx 1", "SET k 1", "EXEC"]


# -- loading and settings ----------------------------------------------------------------------------


def test_module_commands_load_list_and_unload() -> None:
    bench = Bench()
    assert bench("MODULE", "LOAD", twin("timer"), "one", "two") == b"OK"
    row = bench("MODULE", "LIST")[0]
    assert row == [b"name", b"timer", b"ver", 1, b"path", twin("timer").encode(), b"args", [b"one", b"two"]]
    with pytest.raises(CommandError, match=r"^ERR Error loading the extension. Please check the server logs.$"):
        bench("MODULE", "LOAD", twin("timer"))
    assert any("the module name 'timer' is busy" in line for line in bench.lines)
    number = bench("test.createtimer", 100_000, "k")
    with pytest.raises(CommandError, match="the module holds timer that is not fired"):
        bench("MODULE", "UNLOAD", "timer")
    bench("test.stoptimer", number)
    assert bench("MODULE", "UNLOAD", "timer") == b"OK"
    with pytest.raises(CommandError, match="unknown command 'test.gettimer'"):
        bench("test.gettimer", 1)
    with pytest.raises(CommandError, match="^ERR Error unloading module: no such module with that name$"):
        bench("MODULE", "UNLOAD", "timer")
    assert bench("MODULE", "HELP")[0].startswith(b"MODULE <subcommand>")


def test_a_module_with_types_cannot_be_unloaded() -> None:
    bench = Bench("bloom")
    with pytest.raises(CommandError, match="the module exports one or more module-side data types, can't unload"):
        bench("MODULE", "UNLOAD", "bf")


def test_a_module_with_blocked_clients_cannot_be_unloaded() -> None:
    bench = Bench(declared(lambda context, argv: context.block()))
    session = bench.engine.session()
    bench.raw("t.run", session=session)
    with pytest.raises(CommandError, match="the module has blocked clients"):
        bench("MODULE", "UNLOAD", "t")
    bench.engine.close_session(session)
    assert bench("MODULE", "UNLOAD", "t") == b"OK"


def test_on_unload_can_refuse() -> None:
    module = Module("t")

    @module.on_unload
    def unload(context: Context) -> None:
        raise ValueError("not now")

    bench = Bench(module)
    with pytest.raises(CommandError, match="^ERR Error unloading module: operation not possible.$"):
        bench("MODULE", "UNLOAD", "t")
    assert len(bench("MODULE", "LIST")) == 1


@pytest.mark.parametrize(("setting", "allowed"), [("no", False), ("yes", True), ("local", True)])
def test_enable_module_command(setting: str, allowed: bool) -> None:
    bench = Bench(enable_module_command=setting)
    assert bench("MODULE", "LIST") == []
    if allowed:
        assert bench("MODULE", "LOAD", "bloom") == b"OK"
        return
    for words in (["LOAD", "bloom"], ["LOADEX", "bloom"], ["UNLOAD", "bf"]):
        with pytest.raises(CommandError, match="^ERR MODULE command not allowed. If the enable-module-command"):
            bench("MODULE", *words)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nosuchmodule", "ModuleNotFoundError"),
        ("def", "SyntaxError"),
        ("x = 1", "does not define"),
        ("module = 3", "does not define"),
        ("raise SystemExit", "SystemExit"),
        (
            "from rillet.modules import *\nmodule = Module('x')\n@module.on_load\ndef f(c, a): 1 / 0",
            "ZeroDivisionError",
        ),
        (
            "from rillet.modules import *\nmodule = Module('x')\n@module.type\nclass T(ModuleType): name = 'short'",
            "nine characters",
        ),
        ("\x7fELF", "compiled library"),
    ],
)
def test_a_file_that_cannot_be_loaded_names_its_reason(tmp_path: Path, source: str, reason: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(source)
    bench = Bench()
    with pytest.raises(CommandError, match="Error loading the extension"):
        bench("MODULE", "LOAD", file)
    assert reason in bench.lines[-1]
    assert str(file) in bench.lines[-1]
    with pytest.raises(rillet.StoreError, match="Can't load module from"):
        rillet.open(modules=[file])


def test_settings_of_a_module() -> None:
    bench = Bench()
    bench("MODULE", "LOADEX", twin("moduleconfigs"), "CONFIG", "moduleconfigs.numeric", 7, "ARGS", "x")
    assert bench("CONFIG", "GET", "moduleconfigs.*")[0::2] == [
        b"moduleconfigs." + name
        for name in (b"mutable_bool", b"immutable_bool", b"string", b"enum", b"flags", b"memory_numeric", b"numeric")
    ]
    assert bench("CONFIG", "GET", "moduleconfigs.numeric")[1] == b"7"
    bench("CONFIG", "SET", "moduleconfigs.numeric", 8, "moduleconfigs.enum", "two")
    for name, value, text in (
        ("numeric", 9000, "argument must be between"),
        ("string", "rejectisfreed", "Cannot set string"),
        ("immutable_bool", "yes", "can't set immutable config"),
        ("enum", "x", "must be one of"),
    ):
        with pytest.raises(CommandError, match=text):
            bench("CONFIG", "SET", f"moduleconfigs.{name}", value)
    with pytest.raises(CommandError, match="related to argument '(memory_)?numeric'.*cannot equal each other"):
        bench("CONFIG", "SET", "moduleconfigs.numeric", 2000, "moduleconfigs.memory_numeric", 2000)
    assert bench("CONFIG", "GET", "moduleconfigs.numeric")[1] == b"8"
    bench("MODULE", "UNLOAD", "moduleconfigs")
    assert bench("CONFIG", "GET", "moduleconfigs.*") == []


def _settings(**values: Any) -> Any:
    return {f"bf.{name.replace('_', '-')}": value for name, value in values.items()}


def test_settings_through_rillet_open() -> None:
    with rillet.open(modules=["bloom"], **_settings(initial_size=5, error_rate=0.5)) as store:
        store.execute("BF.ADD", "f", "x")
        assert store.execute("BF.INFO", "f", "CAPACITY") == [5]
    with pytest.raises(rillet.StoreError, match="without loadmodule directive.*bf.initial-size"):
        rillet.open(**_settings(initial_size=5))
    with pytest.raises(rillet.StoreError, match="error rate range"):
        rillet.open(modules=["bloom"], **_settings(error_rate=2))


def test_modules_of_rillet_open_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="modules is a list"):
        rillet.open(modules="bloom")
    with pytest.raises(ValueError, match="pass its name or its path"):
        rillet.open(tmp_path / "x", modules=[Module("t")])


def test_two_stores_have_their_own_state() -> None:
    module = Module("t")

    @module.on_load
    def load(context: Context, arguments: list[bytes]) -> None:
        context.state.count = 0

    @module.command("t.count")
    def count(context: Context, argv: list[bytes]) -> int:
        context.state.count += 1
        return int(context.state.count)

    with rillet.open(modules=[module]) as one, rillet.open(modules=[module]) as other:
        assert [one.execute("t.count"), one.execute("t.count"), other.execute("t.count")] == [1, 2, 1]
