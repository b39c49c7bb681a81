"""Users: what a session may do, when this is decided, and what is logged. tests/differential compares the rules."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.modules import Module
from rillet.modules.manager import modules_of
from rillet.runtime.acl.commands import command_set
from rillet.runtime.registry import TABLE
from rillet.runtime.session_state import RESTRICTED, names
from rillet.types.compat import COMPATS
from tests.commands.ends import NOW, Bench
from tests.differential.wire import Local

SHA_P = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940"


class Transport:
    """The connection of a session, which records that it was closed."""

    def __init__(self) -> None:
        self.closed = False
        self.peer = self.local = "127.0.0.1:1"

    def close(self) -> None:
        self.closed = True

    kill = close

    def woken(self) -> None:
        """Do nothing: the test reads the replies."""


def user_of(bench: Bench, rules: str, name: str = "u") -> Local:
    """Return a session of a new user with the password `p`."""
    assert bench("ACL", "SETUSER", name, "reset", "on", ">p", *rules.split(" ")) == b"OK"
    other = bench.beside()
    other.session.transport = Transport()
    assert other("AUTH", name, "p") == b"OK"
    return other


def log_of(bench: Bench) -> list[dict[bytes, Any]]:
    """Return ACL LOG as dicts."""
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in bench("ACL", "LOG")]


@pytest.fixture(params=["7.0", "newest"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(compat=request.param)


# -- the ordinary case ------------------------------------------------------------------------------


def test_a_user_with_all_permissions_is_not_asked(bench: Bench) -> None:
    assert names(bench.session.state) == "ordinary"
    assert names(user_of(bench, "allkeys allchannels allcommands").session.state) == "ordinary"
    # A later selector that permits everything is enough.
    assert names(user_of(bench, "~a* +get (~* &* +@all)").session.state) == "ordinary"
    limited = user_of(bench, "~a* &* +@all", "limited")
    assert names(limited.session.state) == "RESTRICTED"
    bench("ACL", "SETUSER", "limited", "allkeys")
    assert names(limited.session.state) == "ordinary"
    bench("ACL", "SETUSER", "limited", "-get")
    assert limited.session.state & RESTRICTED
    bench.engine.check()


def test_the_door_of_a_limited_user_checks_each_command() -> None:
    bench = Bench(compat="newest")
    bench("SET", "b", "1")
    other = Local(bench.engine, door=True)
    bench("ACL", "SETUSER", "u", "on", "nopass", "~a", "+@all")
    assert other("AUTH", "u", "") == b"OK"
    assert (other("SET", "a", "1"), other("GET", "a")) == (b"OK", b"1")
    assert other("GET", "b") == "NOPERM No permissions to access a key"
    assert other("XADD", "b", "*", "f", "v") == "NOPERM No permissions to access a key"


# -- decisions --------------------------------------------------------------------------------------


def test_texts_of_denied_calls(bench: Bench) -> None:
    user = user_of(bench, "%R~a ~w &news +get +set +publish +subscribe +psubscribe +config|get")
    if bench.engine.settings.compat.name == "7.0":
        who, one_of = "this user", "this user has no permissions to access one of the"
        key, channel = f"{one_of} keys used as arguments", f"{one_of} channels used as arguments"
    else:
        who, key, channel = "User u", "No permissions to access a key", "No permissions to access a channel"
    assert user("DEL", "a") == f"NOPERM {who} has no permissions to run the 'del' command"
    assert user("CONFIG", "SET", "hz", "10") == f"NOPERM {who} has no permissions to run the 'config|set' command"
    assert user("CONFIG", "GET", "hz") == [b"hz", b"10"]
    assert user("SET", "a", "1") == f"NOPERM {key}"
    assert user("SET", "w", "1") == b"OK"
    assert user("GET", "x") == f"NOPERM {key}"
    assert user("PUBLISH", "x", "m") == f"NOPERM {channel}"
    assert user("PUBLISH", "news", "m") == 0
    assert user("PSUBSCRIBE", "new?") == f"NOPERM {channel}"  # patterns are compared literally
    assert user("SUBSCRIBE", "news", "x") == f"NOPERM {channel}"
    assert user("SELECT", "1") == f"NOPERM {who} has no permissions to run the 'select' command"


def test_a_pattern_may_be_subscribed_to_if_it_is_equal(bench: Bench) -> None:
    user = user_of(bench, "&new* resetkeys -@all +psubscribe")
    assert user("PSUBSCRIBE", "new*") == [b"psubscribe", b"new*", 1]


def test_flags_that_depend_on_the_arguments(bench: Bench) -> None:
    writer = user_of(bench, "%W~k %R~r +set +bitfield +sort +sort_ro")
    assert writer("SET", "k", "1") == b"OK"
    assert writer("SET", "k", "1", "GET").startswith("NOPERM")
    assert writer("BITFIELD", "r", "GET", "u8", "0") == [0]
    assert writer("BITFIELD", "r", "SET", "u8", "0", "1").startswith("NOPERM")
    assert writer("SORT", "r", "STORE", "k") == 0
    assert writer("SORT", "r", "STORE", "r").startswith("NOPERM")


def test_sort_needs_all_keys_for_by_and_get(bench: Bench) -> None:
    bench("RPUSH", "l", "2", "1")
    user = user_of(bench, "~l +sort")
    assert user("SORT", "l") == [b"1", b"2"]
    assert user("SORT", "l", "BY", "nosort") == [b"2", b"1"]
    assert user("SORT", "l", "BY", "w_*") == "ERR BY option of SORT denied due to insufficient ACL permissions."
    assert user("SORT", "l", "GET", "#") == "ERR GET option of SORT denied due to insufficient ACL permissions."
    bench("ACL", "SETUSER", "u", "%R~*")
    assert user("SORT", "l", "BY", "w_*", "GET", "#") == [b"1", b"2"]


def test_an_unauthenticated_session_may_run_auth_hello_reset_and_quit(bench: Bench) -> None:
    bench("ACL", "SETUSER", "default", "off")
    other = bench.beside()
    assert other("GET", "a") == "NOAUTH Authentication required."
    assert other("HELLO", "3").startswith("NOAUTH HELLO must be called")
    assert other("RESET") == b"RESET"
    assert other("AUTH", "default", "").startswith("WRONGPASS")
    bench("ACL", "SETUSER", "default", "on")
    assert other("GET", "a") is not None  # the user `default` needs no password again
    bench.engine.check()


def test_a_session_that_was_authenticated_stays_so(bench: Bench) -> None:
    early, late = bench.beside(), None
    bench("CONFIG", "SET", "requirepass", "secret")
    late = bench.beside()
    assert early("PING") == b"PONG"
    assert late("PING") == "NOAUTH Authentication required."
    assert late("AUTH", "secret") == b"OK"
    bench("CONFIG", "SET", "requirepass", "")
    assert bench("ACL", "GETUSER", "default")[1][:2] == [b"on", b"nopass"]


def test_the_words_of_a_config_set_of_the_same_password_change_nothing(bench: Bench) -> None:
    bench("CONFIG", "SET", "requirepass", "secret")
    bench("ACL", "SETUSER", "default", "nopass")
    bench("CONFIG", "SET", "requirepass", "secret")
    assert bench.beside()("PING") == b"PONG"


# -- transactions, blocked clients, subscriptions ---------------------------------------------------


def test_a_transaction_is_checked_when_queued_and_again_when_run(bench: Bench) -> None:
    user = user_of(bench, "~* +multi +exec +set +get +discard")
    user("MULTI")
    assert user("DEL", "a").startswith("NOPERM")
    assert user("EXEC") == "EXECABORT Transaction discarded because of previous errors."
    user("MULTI")
    assert [user("SET", "a", "1"), user("GET", "a")] == [b"QUEUED", b"QUEUED"]
    bench("ACL", "SETUSER", "u", "-get")
    replies = user("EXEC")
    assert replies[0] == b"OK"
    assert replies[1] == (
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. "
        "This command is no longer allowed for the following reason: no permission to execute the command or subcommand"
    )
    entries = log_of(bench)
    assert [entry[b"context"] for entry in entries] == [b"multi", b"multi"]
    assert [entry[b"object"] for entry in entries] == [b"get", b"del"]


def test_a_blocked_client_is_checked_when_its_command_continues(bench: Bench) -> None:
    user = user_of(bench, "~* +blpop")
    assert not bench.engine.execute(user.session, [b"BLPOP", b"l", b"0"])
    bench("ACL", "SETUSER", "u", "-blpop")
    bench("RPUSH", "l", "x")
    reply = user.session.out.take_bytes()
    if bench.engine.settings.compat.name == "7.0":
        assert b"x" in reply
        return
    assert reply == b"-NOPERM User u has no permissions to run the 'blpop' command\r\n"
    assert bench("LLEN", "l") == 1
    counted = bench.engine.stats.of_command(TABLE[b"blpop"])
    assert (counted.calls, counted.rejected, counted.failed) == (0, 1, 0)
    bench.engine.check()


def test_deleting_a_user_closes_its_sessions(bench: Bench) -> None:
    user = user_of(bench, "~* +@all")
    blocked = user_of(bench, "~* +@all", "v")
    bench.engine.execute(blocked.session, [b"BLPOP", b"l", b"0"])
    assert bench("ACL", "DELUSER", "u", "v", "nobody") == 2
    for one in (user, blocked):
        assert one.session.closing
        assert one.session.transport.closed
    assert bench("ACL", "DELUSER", "default") == "ERR The 'default' user cannot be removed"
    assert bench("ACL", "USERS") == [b"default"]


def test_a_user_may_delete_itself_and_gets_the_reply(bench: Bench) -> None:
    user = user_of(bench, "+acl")
    assert user("ACL", "DELUSER", "u") == 1
    assert user.session.closing
    assert not user.session.transport.closed


def test_losing_a_channel_closes_its_subscribers(bench: Bench) -> None:
    both = user_of(bench, "&a &b +subscribe +psubscribe +ssubscribe")
    other = bench.beside()
    other.session.transport = Transport()
    other("AUTH", "u", "p")
    both("SUBSCRIBE", "b")
    other("SSUBSCRIBE", "a")
    bench("ACL", "SETUSER", "u", "&c")
    assert not both.session.closing
    bench("ACL", "SETUSER", "u", "resetchannels", "&a")
    assert both.session.transport.closed
    assert not other.session.closing


def test_client_list_and_kill_know_the_user(bench: Bench) -> None:
    user = user_of(bench, "~* +@all")
    assert b" user=u " in bench("CLIENT", "LIST")
    assert bench("CLIENT", "KILL", "USER", "nobody").startswith("ERR No such user 'nobody'")
    assert bench("CLIENT", "KILL", "USER", "u") == 1
    assert user.session.closing


# -- scripts ----------------------------------------------------------------------------------------


def test_what_scripts_ask_for(bench: Bench) -> None:
    user = user_of(bench, "~a +get")
    acl, get = bench.engine.acl, TABLE[b"get"]
    assert acl.script_error(user.session, get, [b"GET", b"a"]) is None
    error = str(acl.script_error(user.session, get, [b"GET", b"b"]))
    if bench.engine.settings.compat.name == "7.0":
        assert error == ("ERR The user executing the script can't access at least one of the keys mentioned in the "
                         "command arguments")  # fmt: skip
    else:
        assert error == "ERR ACL failure in script: No permissions to access a key"
    assert log_of(bench)[0][b"context"] == b"lua"
    assert acl.denial(bench.session, get, [b"GET", b"b"]) == (0, 0)


# -- ACL LOG ----------------------------------------------------------------------------------------


def test_entries_of_the_log_are_joined_and_cut(bench: Bench) -> None:
    user = user_of(bench, "~a +get +auth")
    for _ in range(3):
        user("GET", "b")
    user("SET", "a", "1")
    assert user("AUTH", "u", "wrong").startswith("WRONGPASS")
    bench.clock.advance(500)
    found = log_of(bench)
    assert [(one[b"reason"], one[b"object"], one[b"count"]) for one in found] == [
        (b"auth", b"AUTH", 1), (b"command", b"set", 1), (b"key", b"b", 3),
    ]  # fmt: skip
    assert found[0][b"username"] == b"u"
    assert found[2][b"age-seconds"] == b"0.5"
    assert b" user=u " in found[2][b"client-info"]
    assert b" cmd=get " in found[2][b"client-info"]
    if bench.engine.settings.compat.name != "7.0":
        assert (found[2][b"entry-id"], found[2][b"timestamp-created"]) == (0, NOW)
    bench.clock.advance(60_001)
    user("GET", "b")
    assert log_of(bench)[0][b"count"] == 1
    assert len(bench("ACL", "LOG", "2")) == 2
    assert bench("ACL", "LOG", "-5") == []
    bench("CONFIG", "SET", "acllog-max-len", "1")
    user("GET", "c")
    assert [one[b"object"] for one in log_of(bench)] == [b"c"]
    assert bench("ACL", "LOG", "RESET") == b"OK"
    assert bench("ACL", "LOG") == []
    assert bench.engine.acl.log.denials[b"key"] == 5


# -- rules ------------------------------------------------------------------------------------------


def test_one_wrong_rule_changes_nothing(bench: Bench) -> None:
    user_of(bench, "~a +get")
    before = bench("ACL", "LIST")
    error = bench("ACL", "SETUSER", "u", "+set", "~b", "+nosuch")
    assert error == "ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL"
    assert bench("ACL", "LIST") == before
    assert bench("ACL", "SETUSER", "a b").startswith("ERR Usernames can't contain spaces")
    assert bench("ACL", "SETUSER", "w", "(~a", "+get") == (
        "ERR Unmatched parenthesis in acl selector starting at '(~a'."
    )
    assert b"w" not in bench("ACL", "USERS")


@pytest.mark.parametrize(
    ("compat", "selector"),
    [
        ("7.0", b"(resetchannels -@all)"),
        ("newest", b"(resetchannels -@all)"),
        ("valkey", b"(~ab resetchannels -@all +get)"),
    ],
)
def test_quotes_in_a_selector(compat: str, selector: bytes) -> None:
    bench = Bench(compat=compat)
    assert bench("ACL", "SETUSER", "u", "(~\"a\"b +g'e't)") == b"OK"
    assert bench("ACL", "LIST")[1].endswith(selector)


def test_descriptions_by_version() -> None:
    rules = ("on", ">p", "~a*", "&n", "+@read", "-get", "+@string", "+config|get", "+config", "-@string")
    texts = {}
    for compat in ("7.0", "8.6", "valkey"):
        bench = Bench(compat=compat)
        assert bench("ACL", "SETUSER", "u", *rules) == b"OK"
        texts[compat] = bench("ACL", "LIST")[1].decode()
    newer = f"#{SHA_P} ~a* resetchannels &n -@all +@read -get +config -@string"
    assert texts["8.6"] == "user u on sanitize-payload " + newer
    assert texts["valkey"] == "user u on " + newer
    assert texts["7.0"].startswith(f"user u on #{SHA_P} ~a* resetchannels &n -@all ")
    assert "+config" in texts["7.0"].split()


@pytest.mark.parametrize("compat", ["7.0", "newest", "valkey"])
def test_a_description_creates_the_same_user(compat: str) -> None:
    bench = Bench(compat=compat)
    bench("ACL", "SETUSER", "u", "on", ">p", "~a", "%R~b", "&c", "+@write", "-@slow", "+select|0", "-set", "+@geo")
    bench("ACL", "SETUSER", "u", "(~x +get)", "(&y -@all +@pubsub -publish)")
    line = bench("ACL", "LIST")[1]
    _, _, *rules = line.split(b" ")
    bench("ACL", "DELUSER", "u")
    assert bench("ACL", "SETUSER", "u", *rules) == b"OK"
    assert bench("ACL", "LIST")[1] == line


def test_every_command_has_a_position_and_every_category_a_command() -> None:
    for compat in COMPATS.values():
        commands = command_set(compat, 16)
        known = [one for entry in TABLE.known(compat) for one in (entry, *(entry.subcommands or {}).values())]
        for one in known:
            if one.known_to(compat):
                assert commands.name(commands.find(one.fullname.encode())) == one.fullname.encode()
        for category in commands.categories:
            assert commands.applied(category), category


def test_databases_of_valkey() -> None:
    bench = Bench(compat="valkey")
    user = user_of(bench, "~* +@all db=0,2")
    assert user("SET", "a", "1") == b"OK"
    assert user("SELECT", "1") == "NOPERM No permissions to access database"
    assert user("COPY", "a", "b", "DB", "1") == "NOPERM No permissions to access database"
    assert user("COPY", "a", "b", "DB", "2") == 1
    assert user("FLUSHALL") == "NOPERM No permissions to access database"
    assert user("PING") == b"PONG"
    assert log_of(bench)[0][b"reason"] == b"database"
    user("MULTI")
    assert user("SELECT", "2") == b"QUEUED"
    bench("ACL", "SETUSER", "u", "db=0")
    assert user("GET", "a") == "NOPERM No permissions to access database"
    assert bench("ACL", "DRYRUN", "u", "SELECT", "3") == b"User u has no permissions to access database 3"


# -- the host, modules, other commands ---------------------------------------------------------------


def test_without_an_acl_file(bench: Bench) -> None:
    for word in ("LOAD", "SAVE"):
        assert "not configured to use an ACL file" in bench("ACL", word)


def test_a_file_replaces_the_users(bench: Bench) -> None:
    kept = user_of(bench, "~* +@all", "kept")
    gone = user_of(bench, "~* +@all", "gone")
    acl = bench.engine.acl
    text = b"user default on nopass ~* &* +@all\n\n user kept on nopass ~a +get\n"
    acl.load(text, "users.acl")
    assert bench("ACL", "USERS") == [b"default", b"kept"]
    assert gone.session.transport.closed
    if bench.engine.settings.compat.name == "7.0":
        assert kept.session.transport.closed
    else:
        assert kept("GET", "b") == "NOPERM No permissions to access a key"
    with pytest.raises(Exception, match="no change to the previously active ACL rules") as raised:
        acl.load(b"user a +nosuch\nusr b\nuser c foo bar +get\nuser c\nuser d\tx", "f")
    assert str(raised.value) == (
        "ERR f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. "
        "f:2 should start with user keyword followed by the username. f:3: Syntax error. "
        "WARNING: Duplicate user 'c' found on line 4. 'f:5: username 'd\tx' contains invalid characters. "
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    )
    assert bench("ACL", "USERS") == [b"default", b"kept"]


def test_commands_of_modules_follow_the_rules() -> None:
    module = Module("acltest", version=1)

    @module.command("acltest.read", arity=2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read")
    def read(context: Any, argv: list[bytes]) -> Any:
        """Return the word."""
        return argv[1]

    bench = Bench(compat="newest")
    user, future = user_of(bench, "~a +@read"), user_of(bench, "~* +@all -get", "future")
    assert user("acltest.read", "a").startswith("ERR unknown command")
    beside = Bench(compat="newest")
    assert beside.engine.acl.commands() is bench.engine.acl.commands()  # computed once
    modules_of(bench.engine).load(module, "acltest", [])
    assert user("acltest.read", "a") == b"a"
    assert b"acltest.read" in bench("ACL", "CAT", "read")
    assert b"acltest.read" not in beside("ACL", "CAT", "read")
    assert user("acltest.read", "b") == "NOPERM No permissions to access a key"
    assert future("acltest.read", "b") == b"b"
    bench("ACL", "SETUSER", "u", "-acltest.read")
    assert user("acltest.read", "a").startswith("NOPERM")
    modules_of(bench.engine).unload("acltest")
    assert bench.engine.acl.commands() is beside.engine.acl.commands()


def test_genpass_and_cat(bench: Bench) -> None:
    assert len(bench("ACL", "GENPASS")) == 64
    assert len(bench("ACL", "GENPASS", "5")) == 2
    assert bench("ACL", "GENPASS", "0").startswith("ERR ACL GENPASS argument must be the number of bits")
    assert bench("ACL", "CAT", "nosuch") == "ERR Unknown category 'nosuch'"
    assert (b"array" in bench("ACL", "CAT")) == (bench.engine.settings.compat.name == "newest")
    assert b"get" in bench("ACL", "CAT", "READ")


def test_dry_run(bench: Bench) -> None:
    user_of(bench, "~a +get")
    assert bench("ACL", "DRYRUN", "nobody", "GET", "a") == "ERR User 'nobody' not found"
    assert bench("ACL", "DRYRUN", "u", "nosuch") == "ERR Command 'nosuch' not found"
    assert bench("ACL", "DRYRUN", "u", "GET").startswith("ERR wrong number of arguments for 'get' command")
    assert bench("ACL", "DRYRUN", "u", "GET", "a") == b"OK"
    assert b"no permissions to access the 'b' key" in bench("ACL", "DRYRUN", "u", "GET", "b")
    assert bench("ACL", "LOG") == []
