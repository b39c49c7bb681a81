"""rillet on a system without fork, Unix sockets and fcntl: everything works except the features that need them."""

from __future__ import annotations

from pathlib import Path

from rillet.server.unix_socket import UNIX_SOCKETS
from tests.judge import free_port
from tests.persistence.simulated_windows import PREAMBLE, run


def test_an_in_memory_store_works() -> None:
    done = run("""
import rillet
with rillet.open() as store:
    stream = store.stream("s")
    stream.add({"a": "1"})
    print(len(stream))
""")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_durable_store_keeps_its_entries_and_is_rewritten(tmp_path: Path) -> None:
    write = """
import rillet, time
with rillet.open(sys.argv[1], appendfsync="always") as store:
    for n in range(int(sys.argv[2])):
        store.stream("s").add({"a": n})
    if len(sys.argv) > 3:
        redis = store.redis()
        redis.bgrewriteaof()
        while redis.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.01)
        print(redis.info("persistence")["aof_last_bgrewrite_status"])
        redis.bgsave()
        while redis.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.01)
        print(redis.info("persistence")["rdb_last_bgsave_status"])
    print(len(store.stream("s")))
"""
    assert run(write, str(tmp_path / "store"), "3").stdout == "3\n"
    done = run(write, str(tmp_path / "store"), "2", "rewrite")
    assert (done.stdout, done.stderr) == ("ok\nok\n5\n", "")
    assert run(write, str(tmp_path / "store"), "0").stdout == "5\n"


def test_a_second_process_cannot_open_a_store_without_unix_sockets(tmp_path: Path) -> None:
    done = run("""
import rillet
with rillet.open(sys.argv[1]):
    child = os.environ.get("CHILD")
    done = subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], capture_output=True, text=True)
    print(done.stdout.strip(), done.stderr.strip())
""", str(tmp_path / "store"), _SECOND)  # fmt: skip
    assert "without Unix sockets only one process can open it" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


def test_a_server_needs_fork_only_for_bgsave_and_bgrewriteaof(tmp_path: Path) -> None:
    done = run("""
import threading
from rillet.cli import main

def client():
    connection = None
    while connection is None:
        try:
            connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        except OSError:
            threading.Event().wait(0.01)
    file = connection.makefile("rwb")

    def call(line):
        file.write(line + b"\\r\\n")
        file.flush()
        reply = file.readline()
        return reply + file.readline() if reply[:1] == b"$" else reply

    while call(b"PING").startswith(b"-LOADING"):
        pass
    for line in (b"PING", b"SET k v", b"SAVE", b"BGSAVE", b"BGREWRITEAOF", b"GET k"):
        print("REPLY", *call(line).decode().split("\\r\\n"))
    call(b"SHUTDOWN NOSAVE")

threading.Thread(target=client, daemon=True).start()
sys.exit(main(["serve", "--dir", sys.argv[1], "--port", sys.argv[2], "--appendonly", "yes"]))
""", str(tmp_path), str(free_port()))  # fmt: skip
    replies = [line.removeprefix("REPLY ").strip() for line in done.stdout.splitlines() if line.startswith("REPLY")]
    assert done.returncode == 0, done.stderr
    assert replies[:3] == ["+PONG", "+OK", "+OK"]
    assert replies[-1] == "$1 v"
    assert replies[3] == "-ERR Can't save in background: fork: this operating system has no fork"
    assert replies[4].startswith("-ERR Can't execute an AOF background rewriting.")
    assert "this operating system has no fork" in done.stdout


def test_a_unix_socket_is_rejected_with_one_line(tmp_path: Path) -> None:
    script = 'from rillet.cli import main\nsys.exit(main(["serve", "--port", "0", "--unixsocket", sys.argv[1]]))'
    done = run(script, str(tmp_path / "socket"))
    assert done.returncode == 1
    assert done.stderr == f"rillet: cannot listen on {tmp_path / 'socket'}: this operating system has no Unix sockets\n"


def test_this_system_has_unix_sockets() -> None:
    assert UNIX_SOCKETS


def _second() -> str:
    return PREAMBLE + """
import rillet
try:
    rillet.open(sys.argv[1])
except rillet.StoreError as error:
    print(error)
"""


_SECOND = _second()
