"""The ACL file and the `user` lines of redis.conf, beside redis-server; starts that fail."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rillet.runtime.engine import Engine
from rillet.server.acl_file import load_users
from rillet.server.config_rewrite import rewritten
from rillet.server.redis_conf import load
from tests.differential.wire import Local
from tests.judge import redis_binary, running_redis
from tests.server.harness import connected, launch, running

pytestmark = pytest.mark.slow
NEEDS_REDIS = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
USERS = """user alice on >secret ~a* resetchannels -@all +get

user default on nopass ~* &* +@all
user bob off (%R~b &news -@all +@read)
"""


@NEEDS_REDIS
def test_the_file_is_read_written_and_checked_as_by_redis(tmp_path: Path) -> None:
    folders = tmp_path / "ours", tmp_path / "theirs"
    for folder in folders:
        folder.mkdir()
        (folder / "users.acl").write_text(USERS)
    with (
        running(folders[0], "--compat", "7.0", "--aclfile", "users.acl") as ours,
        running_redis("--aclfile", "users.acl", folder=folders[1]) as judge,
        ours.client() as client,
        connected(judge.port) as theirs,
    ):

        def same(command: str) -> bytes:
            """Return the reply of both."""
            reply = client.call(command)
            theirs.send(command)
            expected = theirs.reply()
            assert reply == expected, command
            return reply

        same("ACL LIST")
        same("ACL SETUSER carol on nopass ~c* &* -@all +set")
        same("ACL DELUSER bob")
        same("ACL SAVE")
        texts = [(folder / "users.acl").read_bytes() for folder in folders]
        assert texts[0] == texts[1]
        for text in ("user a +nosuch\nuser b foo\n", "nonsense\n", "user a on\nuser a off\n", ""):
            for folder in folders:
                (folder / "users.acl").write_text(text)
            same("ACL LOAD")
            same("ACL LIST")
        for folder in folders:
            (folder / "users.acl").unlink()
        assert b"No such file or directory" in same("ACL LOAD")
        assert [path.name for path in folders[0].glob("*.tmp*")] == []


def test_users_of_the_configuration_are_rewritten() -> None:
    text = b"user alice on nopass ~a +get\n\nuser default on nopass ~* &* +@all -flushall\nport 0\n"
    configuration = load(["-", "--compat", "newest"], io.BytesIO(text))
    engine = Engine(configuration.settings)
    load_users(engine, configuration.users)
    local = Local(engine)
    assert local("FLUSHALL").startswith("NOPERM")
    local("ACL", "SETUSER", "alice", "+set")
    local("ACL", "SETUSER", "carol", "~'q'")
    lines = rewritten(text, engine.settings, users=engine.acl.lines()).splitlines()
    assert lines[0] == b"user alice on nopass sanitize-payload ~a resetchannels -@all +get +set"
    assert lines[2] == b"user carol off sanitize-payload \"~'q'\" resetchannels -@all"
    assert b"user default on nopass sanitize-payload ~* &* +@all -flushall" in lines[3:]
    again = Engine(configuration.settings)
    load_users(again, load(["-"], io.BytesIO(b"\n".join(lines))).users)
    assert again.acl.lines() == engine.acl.lines()
    engine.settings.set_text("aclfile", "users.acl")
    assert b"user " not in rewritten(text, engine.settings, users=engine.acl.lines())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("user a on\nuser a off", "Duplicate user"),
        ("user a +nosuch", "Unknown command or category name in ACL"),
        ("user a (+get", "Wrong format"),
        ("user 'a b' on", "Spaces not allowed"),
        ("user a on\naclfile users.acl", "use one of both"),
        ("aclfile nosuch.acl", "No such file"),
    ],
)
def test_a_wrong_definition_prevents_the_start(tmp_path: Path, lines: str, message: str) -> None:
    conf = tmp_path / "redis.conf"
    conf.write_text(f"port 0\nunixsocket {tmp_path}/s\ndir {tmp_path}\n{lines}\n")
    process = launch([str(conf)])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message in errors
