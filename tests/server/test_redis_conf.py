"""Settings from a file, the standard input and the command line, with redis-server's grammar."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rillet.runtime.settings.settings import DEFAULT_SAVE
from rillet.server.redis_conf import ConfigurationError, load


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ((), "save", DEFAULT_SAVE),
        (("--save", "60", "1", "--save", "300", "10"), "save", ((60, 1), (300, 10))),
        (("--save", "60 1 300 10"), "save", ((60, 1), (300, 10))),
        (("--save", "60", "1", "--save", ""), "save", ()),
        (("--save", "", "--save", "60", "1"), "save", ((60, 1),)),
        (("--save", "--hz", "20"), "save", ()),
        (("--save", "--hz", "20"), "hz", 20),
        (("--hz", "20", "--save"), "save", ()),
        (("--port 7000", "--hz", "20"), "port", 7000),
        (("--proc-title-template", "--save", "--hz", "30"), "proc_title_template", "--save"),
        (("--appendfilename", 'a "b" c'), "appendfilename", 'a "b" c'),
        (("--appendfilename 'a b'",), "appendfilename", "a b"),
        (("--shutdown-on-sigterm", "now", "NOSAVE"), "shutdown_on_sigterm", ("nosave", "now")),
        (("--shutdown-on-sigterm", "default"), "shutdown_on_sigterm", ()),
        (("--hz", "100000"), "hz", 500),
        (("--unixsocketperm", "700"), "unixsocketperm", 0o700),
        (("--slowlog-max-len", "17"), "slowlog_max_len", 17),
    ],
)
def test_options_are_parsed_from_the_command_line(arguments: tuple[str, ...], name: str, value: object) -> None:
    assert getattr(load(arguments).settings, name) == value


def test_the_last_value_wins_and_save_accumulates(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("hz 30\nsave 30 1\n")
    file = tmp_path / "redis.conf"
    file.write_text(f'hz 20\nport 1\nsave 20 1\ninclude {tmp_path}/m*.conf\ninclude {tmp_path}/none*\ntimeout "7"\n')
    configuration = load([str(file), "--port", "3", "--save", "40", "1", "-"], io.BytesIO(b"port 2\nlogfile 'a b'\n"))
    settings = configuration.settings
    assert configuration.file == file
    assert (settings.hz, settings.port, settings.timeout, settings.logfile) == (30, 3, 7, "a b")
    assert settings.save == ((20, 1), (30, 1), (40, 1))
    assert load([str(file), "--save", ""]).settings.save == ()


def test_a_configuration_is_read_from_the_standard_input() -> None:
    configuration = load(["-", "--hz", "12"], io.BytesIO(b"hz 11\nport 5\n"))
    assert configuration.file is None
    assert (configuration.settings.hz, configuration.settings.port) == (12, 5)


def test_lines_of_users_are_collected() -> None:
    """Their rules are checked when all modules are loaded, because they may name the commands of modules."""
    text = b'user default on nopass ~* &* +@all\nuser alice on >"a b" +nonsense\n'
    users = load(["-"], io.BytesIO(text)).users
    assert [(line.name, line.rules) for line in users] == [
        (b"default", (b"on", b"nopass", b"~*", b"&*", b"+@all")), (b"alice", (b"on", b">a b", b"+nonsense")),
    ]  # fmt: skip
    assert "line 2" in users[1].place
    with pytest.raises(ConfigurationError, match="wrong number of arguments"):
        load(["-"], io.BytesIO(b"user\n"))


def test_directives_without_an_effect_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "redis.conf"
    file.write_text("daemonize no\nio-threads 1\nlist-max-ziplist-value 5\nlua-replicate-commands yes\n")
    assert load([str(file)]).without_effect == ("list-max-ziplist-value", "lua-replicate-commands")
    file.write_text("hz 20\nio-threads 4\n")
    with pytest.raises(ConfigurationError, match="line 2: 'io-threads 4': rillet has one thread for input and output"):
        load([str(file)])


def test_the_compat_of_the_command_line_is_in_force_for_the_file(tmp_path: Path) -> None:
    """It selects the valid values of other directives."""
    file = tmp_path / "valkey.conf"
    file.write_text("repl-diskless-load flush-before-load\n")
    assert load([str(file), "--port", "1", "--compat", "valkey"]).settings.repl_diskless_load == "flush-before-load"
    with pytest.raises(ConfigurationError, match="must be one of"):
        load([str(file), "--compat", "7.0"])
    file.write_text("compat 7.0\n")
    assert load([str(file), "--compat", "valkey"]).settings.compat.valkey


def test_the_defaults_are_those_of_the_chosen_server() -> None:
    assert load(["--compat", "valkey"]).settings.syslog_ident == "valkey"
    assert load(["--compat", "valkey", "--lazyfree-lazy-expire", "no"]).settings.lazyfree_lazy_expire is False
    assert load(["--compat", "valkey"]).settings.lazyfree_lazy_expire is True
    assert load(["--compat", "newest"]).settings.lazyfree_lazy_expire is False
