"""Every setting has a test that observes its effect, which EFFECTS names. Those of absent features stay fixed."""

from __future__ import annotations

import ast
import os
import signal
import sys
from functools import cache
from pathlib import Path

import pytest

from rillet.persistence.aof.base import write_base
from rillet.persistence.disk import Disk, DiskFile
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.types.compat import COMPATS
from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import PEERS, required_binary, running_redis
from tests.server.harness import running
from tests.server.test_config import shown

TESTS = Path(__file__).parent.parent
HERE = "server/test_setting_effects.py"
# test -> the settings whose effect it observes
EFFECTS = {
    "commands/test_import_mode.py::test_the_cycle_deletes_nothing_in_import_mode": "import-mode",
    "commands/test_tracking.py::test_the_table_stays_below_its_limit": "tracking-table-max-keys",
    f"{HERE}::test_payloads_of_later_versions": "rdb-version-check",
    f"{HERE}::test_the_access_list": "acl-pubsub-default acllog-max-len aclfile",
    f"{HERE}::test_a_script_that_runs_for_too_long": "busy-reply-threshold lua-memory-limit",
    "scripting/test_against_servers.py::test_a_setting_allows_getfenv_and_setfenv": "lua-enable-deprecated-api",
    f"{HERE}::test_idle_clients_are_disconnected": "timeout",
    f"{HERE}::test_syncs_pause_during_a_rewrite": "no-appendfsync-on-rewrite",
    f"{HERE}::test_idle_tables_are_rehashed": "activerehashing",
    f"{HERE}::test_large_files_are_synced_while_they_are_written":
        "aof-rewrite-incremental-fsync rdb-save-incremental-fsync",
    f"{HERE}::test_a_rewrite_keeps_the_old_files": "aof-disable-auto-gc",
    f"{HERE}::test_every_value_is_true":
        "min-string-size-avoid-copy-reply "
        "min-string-size-avoid-copy-reply-threaded loading-process-events-interval-bytes sanitize-dump-payload",
    "server/test_tls.py::test_a_client_with_a_certificate": "tls-port tls-cert-file tls-key-file tls-ca-cert-file",
    "server/test_tls.py::test_who_needs_a_certificate": "tls-auth-clients",
    "server/test_tls.py::test_a_certificate_is_a_login": "tls-auth-clients-user",
    "server/test_tls.py::test_protocols_ciphers_and_the_servers_order":
        "tls-protocols tls-ciphers tls-ciphersuites tls-prefer-server-ciphers",
    "server/test_tls.py::test_a_key_with_a_passphrase_and_parameters_in_a_file":
        "tls-key-file-pass tls-dh-params-file tls-ca-cert-dir",
    "server/test_tls.py::test_changed_files_are_loaded_after_an_interval": "tls-auto-reload-interval",
    "server/test_protected_mode.py::test_other_hosts_are_refused_without_a_password":
        "protected-mode requirepass unixsocket",
    "server/test_protected_mode.py::test_the_permissions_of_the_unix_socket": "unixsocketperm unixsocketgroup",
    "server/test_protected_mode.py::test_keepalive_is_set_on_every_socket": "tcp-keepalive",
    "server/test_protected_mode.py::test_packets_have_a_mark": "socket-mark-id",
    "server/test_protected_mode.py::test_addresses_change_while_the_server_runs": "bind port",
    "server/test_process.py::test_a_pid_file_exists_while_the_server_runs": "pidfile",
    "server/test_process.py::test_a_server_in_the_background": "daemonize",
    "server/test_process.py::test_systemd_is_notified": "supervised",
    "server/test_process.py::test_the_title_of_the_process": "set-proc-title proc-title-template",
    "server/test_process.py::test_the_score_for_the_oom_killer": "oom-score-adj oom-score-adj-values",
    "server/test_process.py::test_huge_pages_and_the_crash_log": "disable-thp crash-log-enabled",
    "server/test_process.py::test_the_formats_of_the_log": "log-format log-timestamp-format logfile",
    "server/test_process.py::test_the_log_goes_to_syslog": "syslog-enabled syslog-ident syslog-facility",
    "server/test_process.py::test_the_log_can_hide_the_data_of_users": "hide-user-data-from-log",
    "server/test_process.py::test_more_clients_run_the_periodic_jobs_more_often": "dynamic-hz hz",
    "server/test_process.py::test_valkey_s_names_in_hello": "availability-zone extended-redis-compatibility",
    "server/test_serving.py::test_a_client_above_maxclients_is_rejected": "maxclients",
    "server/test_sockets.py::test_the_backlog_applies_to_unix_sockets": "tcp-backlog",
    "server/test_log_lines.py::test_the_server_logs_to_the_configured_file_and_level": "loglevel",
    "server/test_metrics.py::test_a_limit_for_streams": "metrics-port metrics-streams",
    "server/test_unread_replies.py::test_unread_replies_are_bounded_by_the_query_buffer_limit":
        "client-query-buffer-limit",
    "server/test_pubsub.py::test_a_normal_client_is_disconnected_at_its_limit": "client-output-buffer-limit",
    "server/test_bgsave.py::test_settings_select_the_effect_of_a_signal": "shutdown-on-sigint shutdown-on-sigterm",
    "server/test_bgsave.py::test_a_failed_save_rejects_writes_until_one_succeeds": "stop-writes-on-bgsave-error save",
    "server/test_bgsave.py::test_folder_and_file_name_can_change": "dir dbfilename",
    "server/test_bgsave.py::test_replies_and_info_fields_are_those_of_redis": "rdb-key-save-delay",
    "server/test_rewriting.py::test_the_log_has_timestamps_if_enabled": "aof-timestamp-enabled",
    "server/test_rewriting.py::test_a_log_can_be_enabled_at_run_time": "appendonly",
    "server/test_rewriting.py::test_only_replies_to_writes_wait_for_the_sync": "appendfsync",
    "server/test_store_directory.py::test_the_log_of_a_store_has_its_names": "appendfilename appenddirname",
    "server/test_maxmemory.py::test_the_client_with_the_largest_buffers_is_disconnected": "maxmemory-clients",
    "server/test_config.py::test_protected_settings_need_enable_protected_configs": "enable-protected-configs",
    "server/test_config.py::test_a_file_with_every_setting_is_read_back": "enable-debug-command",
    "modules/test_commands.py::test_enable_module_command": "enable-module-command",
    "modules/test_isolation.py::test_a_call_without_a_limit_is_not_watched": "module-time-limit",
    "commands/test_connection.py::test_reset_restores_the_state_of_a_new_connection": "databases",
    f"{HERE}::test_the_settings_are_those_of_the_server": "compat",
    "commands/test_string.py::test_the_length_of_strings_is_limited_for_clients_but_not_for_a_log":
        "proto-max-bulk-len",
    "commands/test_hash_expiry.py::test_events_of_fields": "notify-keyspace-events",
    "commands/test_packed_values.py::test_changed_settings_take_effect":
        "hash-max-listpack-entries hash-max-listpack-value zset-max-listpack-entries zset-max-listpack-value "
        "set-max-listpack-entries set-max-listpack-value set-max-intset-entries list-max-listpack-size",
    "commands/test_stream_idmp.py::test_settings_apply_to_new_streams_only": "stream-idmp-duration stream-idmp-maxsize",
    "commands/test_slowlog.py::test_the_log_has_a_limit_and_can_be_turned_off":
        "slowlog-log-slower-than slowlog-max-len",
    "commands/test_slowlog.py::test_long_commands_are_cut": "slowlog-entry-max-argc slowlog-entry-max-string-len",
    "commands/test_slowlog.py::test_valkey_logs_large_requests_and_replies":
        "commandlog-request-larger-than commandlog-large-request-max-len commandlog-reply-larger-than "
        "commandlog-large-reply-max-len",
    "commands/test_slowlog.py::test_events_are_recorded_and_forgotten": "latency-monitor-threshold",
    "commands/test_slowlog.py::test_histograms_count_the_calls_of_each_command":
        "latency-tracking latency-tracking-info-percentiles",
    "commands/test_string_conditions.py::test_scans_keep_expired_keys_in_transactions_if_the_setting_says_so":
        "lazyexpire-nested-arbitrary-keys",
    "differential/test_values_differential.py::test_log_and_events_are_redis_s":
        "lazyfree-lazy-expire lazyfree-lazy-server-del",
    "differential/test_values_differential.py::test_replies_and_values_are_equal":
        "hll-sparse-max-bytes array-slice-size array-sparse-kmax array-sparse-kmin",
    "differential/test_stream_differential.py::test_nodes_at_exactly_the_limit":
        "stream-node-max-bytes stream-node-max-entries",
    "keyspace/test_expire_cycle.py::test_a_fast_cycle_runs_only_while_many_keys_are_known_to_be_expired":
        "active-expire-effort",
    "keyspace/test_memory_usage.py::test_sizes_of_structures": "list-compress-depth",
    "keyspace/test_eviction.py::test_lru_evicts_idle_keys_and_lfu_rare_ones":
        "maxmemory maxmemory-policy maxmemory-samples",
    "keyspace/test_eviction.py::test_the_time_of_a_run_is_limited_by_the_tenacity": "maxmemory-eviction-tenacity",
    "keyspace/test_eviction.py::test_a_stream_is_trimmed_instead_of_evicted": "maxmemory-streams",
    "keyspace/test_eviction.py::test_evictions_are_logged_published_and_counted": "lazyfree-lazy-eviction",
    "keyspace/test_lru.py::test_frequencies_grow_and_decay": "lfu-log-factor lfu-decay-time",
    "keyspace/test_lazyfree.py::test_del_frees_lazily_only_if_the_setting_says_so": "lazyfree-lazy-user-del",
    "keyspace/test_lazyfree.py::test_a_flush_frees_lazily_with_async_or_the_setting": "lazyfree-lazy-user-flush",
    "keyspace/test_defrag.py::test_it_starts_at_the_thresholds_and_ends": "activedefrag active-defrag-ignore-bytes",
    "keyspace/test_defrag.py::test_the_effort_follows_the_fragmentation":
        "active-defrag-threshold-lower active-defrag-threshold-upper active-defrag-cycle-min active-defrag-cycle-max",
    "persistence/test_rewriting.py::test_a_rewrite_starts_automatically":
        "auto-aof-rewrite-percentage auto-aof-rewrite-min-size",
    "persistence/test_rewriting.py::test_a_torn_end_is_rejected_if_the_settings_require_it": "aof-load-truncated",
    "persistence/test_command_applier.py::test_refused_commands_are_omitted_if_the_setting_permits_it":
        "aof-load-refused",
    "persistence/test_corrupt_tail.py::test_an_invalid_tail_is_cut_off_up_to_the_configured_size":
        "aof-load-corrupt-tail-max-size",
    "persistence/test_rdb_file.py::test_a_rewritten_log_keeps_all_data": "aof-use-rdb-preamble",
    "persistence/test_rdb_file.py::test_written_values_are_read_back": "rdbcompression",
    "persistence/test_rdb_file.py::test_the_parts_of_a_file_are_in_order": "rdbchecksum",
    "persistence/test_rdb_versions.py::test_module_data_is_rejected_skipped_or_kept": "rdb-foreign",
    "persistence/test_frames.py::test_damage_is_rejected_and_a_torn_end_is_cut_off": "aof-checksums",
    "store/test_stream_memory.py::test_memory_stays_within_the_limit_and_everything_can_be_read": "stream-memory",
    "store/test_stream_memory.py::test_segments_are_compressed_if_the_setting_says_so": "stream-compression",
    "store/test_group_state.py::test_a_server_logs_the_counter_as_the_server_of_compat_does": "log-entries-read",
    "types/test_rdb_stream_judge.py::test_a_payload_of_a_server_is_read_and_written_back_unchanged": "dump-format",
    "client/test_servers.py::test_a_server_that_loads_is_waited_for": "key-load-delay",
    "replication/test_master_protocol.py::test_the_size_of_the_backlog_can_change": "repl-backlog-size",
    "replication/test_master_protocol.py::test_the_backlog_survives_its_replicas_until_its_time_is_over":
        "repl-backlog-ttl",
    "replication/test_older_replicas.py::test_the_log_of_the_master_has_the_original_commands": "repl-compat",
    "replication/test_master_protocol.py::test_replicas_are_pinged": "repl-ping-replica-period",
    "replication/test_master_protocol.py::test_a_snapshot_and_the_stream_behind_it": "repl-diskless-sync",
    "replication/test_master_protocol.py::test_replicas_share_a_snapshot_and_miss_no_change":
        "repl-diskless-sync-delay repl-diskless-sync-max-replicas",
    "replication/test_rdb_channel_failures.py::test_masters_that_offer_no_second_connection": "repl-rdb-channel",
    "replication/test_rdb_channel_failures.py::test_the_limit_of_the_buffer": "replica-full-sync-buffer-limit",
    "replication/test_master_protocol.py::test_writes_need_replicas_in_time":
        "min-replicas-to-write min-replicas-max-lag",
    "replication/test_shutdown.py::test_a_shutdown_that_does_not_wait_for_a_silent_replica": "shutdown-timeout",
    "server/test_protected_mode.py::test_small_packets_for_a_replica_may_be_delayed": "repl-disable-tcp-nodelay",
    "replication/test_replica_following.py::test_what_a_replica_refuses": "replica-serve-stale-data",
    "replication/test_replica_following.py::test_a_writable_replica": "replica-read-only",
    "replication/test_replica_following.py::test_the_setting_follows_the_command": "replicaof",
    "replication/test_replica_settings.py::test_credentials_and_the_announced_address":
        "masterauth masteruser replica-announce-ip replica-announce-port bind-source-addr replica-priority "
        "replica-announced",
    "replication/test_replica_settings.py::test_a_silent_master": "repl-timeout",
    "replication/test_replica_settings.py::test_ways_to_load_a_snapshot": "repl-diskless-load",
    "replication/test_replica_settings.py::test_memory_and_lazy_freeing":
        "replica-lazy-flush replica-ignore-maxmemory rdb-del-sync-files",
    "replication/test_replica_settings.py::test_a_replica_that_differs_or_cannot_write_ends":
        "propagation-error-behavior replica-ignore-disk-write-errors",
    "replication/test_replica_settings.py::test_links_with_tls":
        "tls-replication tls-client-cert-file tls-client-key-file tls-client-key-file-pass",
}


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_setting_has_a_test_of_its_effect() -> None:
    for test in EFFECTS:
        file, _, name = test.partition("::")
        assert name in _functions(file), test
    tested = [name for names in EFFECTS.values() for name in names.split()]
    assert len(tested) == len(set(tested))
    wanted = {name for name, entry in PARAMETERS.items() if not entry.alias and not entry.absent}
    assert set(tested) == wanted


def test_settings_of_absent_features_keep_their_default() -> None:
    """CONFIG SET of the default is accepted, also with a unit; every other value is an error of one line."""
    for name, entry in PARAMETERS.items():
        if not entry.absent or entry.alias:
            continue
        compat = next(one for one in COMPATS.values() if entry.known_to(one))
        settings = Settings(compat=compat)
        assert settings.value_of(entry, str(entry.default)) == entry.default
        with pytest.raises(SettingError) as refused:
            settings.value_of(entry, "5" if entry.default != "5" else "6")
        assert str(refused.value).count("\n") == 0
        bench = Bench(compat=compat)
        if entry.mutable:
            assert bench("CONFIG", "SET", name, entry.default) == b"OK", name
        reason = str(refused.value).removeprefix("ERR ")
        assert bench("CONFIG", "SET", name, "nonsense").endswith(reason) or not entry.mutable


@pytest.mark.parametrize("compat", PEERS)
def test_the_settings_are_those_of_the_server(tmp_path: Path, compat: str) -> None:
    """CONFIG GET * shows every setting of the server of `compat`, with its default, and rillet's own."""
    differ = {"bind", "port", "dir", "save"}  # those that the tests set, and the safe default of rillet
    missing = {"tracking-table-max-keys"}
    with running_redis(binary=required_binary(compat)) as judge, Redis(judge.port) as redis:
        theirs = shown(redis)
    bench = Bench(compat=compat, enable_protected_configs="yes")
    reply = [word.decode() for word in bench("CONFIG", "GET", "*")]
    ours = dict(zip(reply[::2], reply[1::2], strict=True))
    own = {"aof-load-refused", "compat", "dump-format", "log-entries-read", "lua-memory-limit", "maxmemory-streams",
           "metrics-streams", "module-time-limit", "rdb-foreign", "repl-compat"}  # fmt: skip
    assert theirs.keys() - ours.keys() <= missing
    assert ours.keys() - theirs.keys() == own
    same = (ours.keys() & theirs.keys()) - differ
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


@pytest.mark.parametrize("compat", COMPATS)
def test_every_value_is_true(compat: str) -> None:
    """Settings of steps that rillet does not have accept every valid value, and no invalid one."""
    bench = Bench(compat=compat)
    for name, entry in PARAMETERS.items():
        if entry.about.startswith("Every value is true") and not entry.alias:
            assert bench("CONFIG", "SET", name, "nonsense").startswith("ERR CONFIG SET failed"), name
            value = "yes" if entry.show(entry.default) in ("yes", "no") else "4096"
            assert bench("CONFIG", "SET", name, value) == b"OK", name
            assert bench("CONFIG", "GET", name) == [name.encode(), value.encode()], name


# The payload of "bar" from a server of the future: its version is 222.
_FUTURE = b"\x00\x03bar\xde\x00\x0fYUza\xd3\xec\xe0"


@pytest.mark.parametrize(("check", "reply"), [("strict", "ERR DUMP payload version"), ("relaxed", "OK")])
def test_payloads_of_later_versions(check: str, reply: str) -> None:
    bench = Bench(compat="valkey")
    bench("CONFIG", "SET", "rdb-version-check", check)
    said = bench("RESTORE", "k", 0, _FUTURE)
    assert (said.decode() if isinstance(said, bytes) else str(said)).startswith(reply)
    assert (bench("GET", "k") == b"bar") == (check == "relaxed")


def test_idle_tables_are_rehashed() -> None:
    for value in ("yes", "no"):
        bench = Bench(activerehashing=value)
        keys = bench.engine.databases[0].keys
        number = 0
        while not keys.rehashing:
            bench("SET", number, "v")
            number += 1
        for _ in range(50):
            bench.engine.rehash(1000)
        assert keys.rehashing == (value == "no")


class _CountingDisk(Disk):
    """The real disk, which counts the syncs of one file."""

    def __init__(self) -> None:
        self.syncs = 0

    def create(self, path: Path) -> DiskFile:
        file = super().create(path)
        sync = file.sync

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

        def counted() -> None:
            self.syncs += 1
            sync()

        made = Counting()
        made.sync = counted  # type: ignore[attr-defined]
        return made  # type: ignore[return-value]


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_large_files_are_synced_while_they_are_written(tmp_path: Path, preamble: str) -> None:
    for value, syncs in (("yes", 4), ("no", 1)):
        bench = Bench(aof_rewrite_incremental_fsync=value, rdb_save_incremental_fsync=value, rdbcompression="no",
                      aof_use_rdb_preamble=preamble)  # fmt: skip
        for number in range(3):
            bench("SET", number, os.urandom(5_000_000))
        for write in (lambda disk: write_rdb(tmp_path / "rdb", bench.engine, disk=disk),  # noqa: B023
                      lambda disk: write_base(tmp_path / "base", bench.engine, disk)):  # noqa: B023
            disk = _CountingDisk()
            write(disk)
            assert disk.syncs == syncs


def test_a_rewrite_keeps_the_old_files(tmp_path: Path) -> None:
    for value, left in (("yes", 4), ("no", 2)):
        folder = tmp_path / value
        folder.mkdir()
        given = ("--appendonly", "yes", "--aof-disable-auto-gc", value, "--compat", "7.0")
        with running(folder, *given) as server, server.client() as client:
            client.call("SET k v")
            assert client.call("BGREWRITEAOF").startswith(b"+Background")
            client.rewritten()
        assert len([path for path in (folder / "appendonlydir").iterdir() if path.suffix != ".manifest"]) == left


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_syncs_pause_during_a_rewrite(tmp_path: Path) -> None:
    """A rewrite runs for seconds; WAITAOF waits for the sync of each second."""
    for value, synced in (("no", b":1\r\n"), ("yes", b":0\r\n")):
        folder = tmp_path / value
        folder.mkdir()
        given = ("--appendonly", "yes", "--no-appendfsync-on-rewrite", value, "--enable-debug-command", "yes")
        with running(folder, *given) as server, server.client() as client:
            client.call("SET k v")
            assert client.call("CONFIG SET rdb-key-save-delay 100000000") == b"+OK\r\n"
            assert client.call("BGREWRITEAOF").startswith(b"+Background")
            client.call("SET k w")
            assert client.call("WAITAOF 1 0 2500").startswith(b"*2\r\n" + synced)
            assert b"aof_rewrite_in_progress:1" in client.call("INFO persistence")
            client.call("CONFIG SET rdb-key-save-delay 0")
            for child in Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            client.rewritten()


def test_idle_clients_are_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, "--timeout", "1", "--hz", "100") as server, server.client() as client:
        assert client.call("PING") == b"+PONG\r\n"
        assert client.rest() == b""


def test_the_access_list(tmp_path: Path) -> None:
    """acl-pubsub-default, acllog-max-len and aclfile."""
    bench = Bench()
    for value, channels in (("allchannels", b"&*"), ("resetchannels", b"")):
        assert bench("CONFIG", "SET", "acl-pubsub-default", value) == b"OK"
        bench("ACL", "SETUSER", value)
        found = bench("ACL", "GETUSER", value)
        assert found[found.index(b"channels") + 1] == channels
    assert bench("CONFIG", "SET", "acllog-max-len", "2") == b"OK"
    for number in range(4):
        bench("AUTH", f"user{number}", "x")
    assert len(bench("ACL", "LOG")) == 2
    file = tmp_path / "users.acl"
    file.write_text("user alice on nopass ~* +@all\n")
    with running(tmp_path, "--aclfile", str(file)) as server, server.client() as client:
        assert client.call("AUTH alice x") == b"+OK\r\n"


def test_a_script_that_runs_for_too_long(tmp_path: Path) -> None:
    """busy-reply-threshold: other clients get BUSY and may stop it. lua-memory-limit: a script gets an error."""
    pytest.importorskip("lupa")
    given = ("--busy-reply-threshold", "50", "--lua-memory-limit", "32mb")
    with running(tmp_path, *given) as server, server.client() as one, server.client() as two:
        one.socket.sendall(b"*3\r\n$4\r\nEVAL\r\n$20\r\nwhile true do end   \r\n$1\r\n0\r\n")
        while not (told := two.call("PING")).startswith(b"-BUSY"):
            assert told == b"+PONG\r\n"
        assert two.call("SCRIPT KILL") == b"+OK\r\n"
        assert one.reply().startswith(b"-ERR Script killed by user with SCRIPT KILL")
        grow = b"local t = {} for i = 1, 10000000 do t[i] = tostring(i) end"
        one.socket.sendall(b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(grow), grow))
        assert b"memory" in one.reply()
        assert two.call("PING") == b"+PONG\r\n"

