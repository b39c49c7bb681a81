"""Settings from a file, the standard input and the command line, with redis-server's grammar."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rillet.runtime.settings import DEFAULT_SAVE
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
        (("--slowlog-max-len", "17"), "slowlog_max_len", "0"),
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


# The SHA-256 of "secret", as ACL shows a password.
SECRET = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"


def test_the_acl_line_of_the_default_user_is_accepted() -> None:
    """The line must grant all permissions; its password is checked against requirepass."""

    def taken(text: str) -> str:
        password: str = load(["-"], io.BytesIO(text.encode())).settings.requirepass
        return password

    assert taken("user default on nopass sanitize-payload ~* &* +@all") == ""
    assert taken(f"requirepass secret\nuser default on #{SECRET} ~* &* +@all") == "secret"
    assert taken("user default on >other ~* &* +@all") == "other"
    for refused in (f"user default on #{SECRET} ~* &* +@all", "user default on nopass ~a* +@all", "user alice on"):
        with pytest.raises(ConfigurationError):
            taken(refused)


def test_directives_without_an_effect_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "redis.conf"
    file.write_text("daemonize no\ntcp-keepalive 300\nslowlog-max-len 128\nio-threads 1\nlua-time-limit 5000\n")
    assert load([str(file)]).without_effect == ("slowlog-max-len", "lua-time-limit")
    found = load(["--daemonize", "yes", "--io-threads", "4", "--hz", "20", "--port", "0"]).without_effect
    assert found == ("daemonize", "io-threads")
