"""The server as a process: background, pid file, supervision, title, OOM score (server.c: main).

    daemonize             before the event loop: the parent exits, the child has no terminal
    adjust_files          the limit of open files is raised to `maxclients`, or maxclients is reduced
    Process.started       pid file, title, huge pages, OOM score, crash log
    Process.ready         readiness for systemd or upstart
    Process.watch         signs of life for systemd's watchdog, from the server's periodic job
    Process.setting_changed   CONFIG SET of the title, the OOM score, the crash log
    Process.stopped       the pid file is removed

Only Linux has long titles, OOM scores and transparent huge pages. On other systems these settings have no effect, as in
Redis.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path

from rillet.real_time import monotonic
from rillet.runtime.settings.server_settings import expand_title
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import Settings
from rillet.server.log_lines import NOTICE, WARNING, say

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

RESERVED_FILES = 32
"""Open files of the server besides its clients (server.h: CONFIG_MIN_RESERVED_FDS)."""
_PR_SET_THP_DISABLE = 41
_OOM = Path("/proc/self/oom_score_adj")
_MASTER, _CHILD = 0, 2  # positions in oom-score-adj-values


def daemonize() -> None:
    """Continue in a child process without a terminal; the parent exits (server.c: daemonize)."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if null > 2:
        os.close(null)


def adjust_files(settings: Settings) -> None:
    """Raise the limit of open files to `maxclients`, or reduce maxclients (server.c: adjustOpenFilesLimit)."""
    if resource is None:
        return
    wanted = settings.maxclients + RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard) or soft >= wanted:
        return
    best = soft
    for limits in ((wanted, max(hard, wanted)), (min(wanted, hard), hard)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            best = limits[0]
            break
    if best < wanted:
        clients = max(best - RESERVED_FILES, 1)
        say(f"You requested maxclients of {settings.maxclients} requiring at least {wanted} max file descriptors.",
            WARNING)  # fmt: skip
        say(f"Current maximum open files is {best}. maxclients has been reduced to {clients} to compensate for low "
            "ulimit. If you need higher maxclients increase 'ulimit -n'.", WARNING)  # fmt: skip
        settings.set_text("maxclients", str(clients))


class Process:
    """The process of one server."""

    def __init__(self, settings: Settings, config_file: Path | None = None) -> None:
        self._settings = settings
        self._config_file = config_file
        self._pid_file: Path | None = None
        self._notify = ""
        self._watchdog = 0.0  # seconds between two signs of life, 0: none
        self._next_sign = 0.0
        self._oom_base: int | None = None

    def started(self) -> None:
        """Apply the settings, before the data is loaded."""
        settings = self._settings
        if settings.pidfile:
            self._pid_file = Path(settings.pidfile).absolute()
            try:
                self._pid_file.write_text(f"{os.getpid()}\n")
            except OSError as error:
                say(f"Failed to write PID file {self._pid_file}: {error.strerror}", WARNING)
                self._pid_file = None
        self.show_title()
        self._crash_log()
        if settings.disable_thp and sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
        with contextlib.suppress(SettingError):
            self.adjust_oom_score()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def ready(self) -> None:
        """Report to the service manager that the server accepts clients."""
        mode = self._settings.supervised
        if mode == "auto":
            mode = "upstart" if "UPSTART_JOB" in os.environ else "systemd" if "NOTIFY_SOCKET" in os.environ else "no"
        if mode == "systemd":
            self._notify = os.environ.get("NOTIFY_SOCKET", "")
            if not self._notify:
                say("systemd supervision requested or auto-detected, but NOTIFY_SOCKET not found!", WARNING)
            self._tell("STATUS=Ready to accept connections\nREADY=1\n")
            if os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
                with contextlib.suppress(ValueError):
                    # Two signs in the time after which systemd ends the process (sd_watchdog_enabled).
                    self._watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6
        elif mode == "upstart":
            if "UPSTART_JOB" not in os.environ:
                say("upstart supervision requested, but UPSTART_JOB not found!", WARNING)
                return
            say("supervised by upstart, will stop to signal readiness.", NOTICE)
            os.kill(os.getpid(), signal.SIGSTOP)

    def watch(self) -> None:
        """Report to systemd's watchdog that the event loop runs, if that is due."""
        if self._watchdog and (now := monotonic()) >= self._next_sign:
            self._next_sign = now + self._watchdog
            self._tell("WATCHDOG=1\n")

    def stopped(self) -> None:
        """Remove the pid file, and report the end."""
        self._tell("STOPPING=1\n")
        if self._pid_file is not None:
            say("Removing the pid file.")
            with contextlib.suppress(OSError):
                self._pid_file.unlink()
            self._pid_file = None

    def _tell(self, message: str) -> None:
        """Send a message to systemd (sd_notify)."""
        if self._notify:
            address = "\0" + self._notify[1:] if self._notify.startswith("@") else self._notify
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
                one.sendto(message.encode(), address)

    def setting_changed(self, name: str) -> None:
        """Apply a setting after CONFIG SET; SettingError rejects it."""
        if name in ("proc-title-template", "port", "tls-port", "bind"):
            self.show_title()
        elif name == "crash-log-enabled":
            self._crash_log()
        elif name in ("oom-score-adj", "oom-score-adj-values"):
            self.adjust_oom_score()
        elif name == "maxclients":
            wanted = self._settings.maxclients
            adjust_files(self._settings)
            if self._settings.maxclients != wanted:
                raise SettingError("The operating system is not able to handle the specified number of clients, try "
                                   f"with {self._settings.maxclients}")  # fmt: skip

    def _crash_log(self) -> None:
        if self._settings.crash_log_enabled:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no stderr
                faulthandler.enable()
        else:
            faulthandler.disable()

    # -- title ---------------------------------------------------------------------------------------

    def title(self) -> str:
        """Return the title of the process (server.c: expandProcTitleTemplate)."""
        settings = self._settings
        port = settings.port or settings.tls_port
        host = next(iter(settings.bind.split()), "*")
        variables = {
            "title": "rillet", "listen-addr": f"{host}:{port}" if port else f"unixsocket:{settings.unixsocket}",
            "server-mode": "", "config-file": str(self._config_file or "-"), "port": str(settings.port),
            "tls-port": str(settings.tls_port), "unixsocket": settings.unixsocket,
        }  # fmt: skip
        return expand_title(settings.proc_title_template, variables) or ""

    def show_title(self) -> None:
        """Write the title over the arguments of the process, which ps shows; it is cut to their length."""
        if not self._settings.set_proc_title or sys.platform != "linux":
            return
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
            start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
            room = end - start
            text = os.fsencode(self.title())[: room - 1]
            if 0 < room < 1 << 16:
                ctypes.memmove(start, text + bytes(room - len(text)), room)

    # -- the kernel's OOM killer ----------------------------------------------------------------------

    def adjust_oom_score(self, position: int = _MASTER) -> None:
        """Write the score of a process class for the kernel's OOM killer; SettingError if it rejects the score."""
        settings = self._settings
        try:
            if settings.oom_score_adj == "no":
                if self._oom_base is None:
                    return
                score, self._oom_base = self._oom_base, None
            else:
                if self._oom_base is None:
                    self._oom_base = int(_OOM.read_text())
                score = int(settings.oom_score_adj_values.split()[position])
                if settings.oom_score_adj == "yes":
                    score += self._oom_base
            _OOM.write_text(f"{max(-1000, min(score, 1000))}\n")
        except (OSError, ValueError) as error:
            say(f"Unable to write oom_score_adj: {error}", WARNING)
            raise SettingError("Failed to set current oom_score_adj. Check server logs.") from error

    def _in_child(self) -> None:
        """In a forked child that writes a file: take the score of a child."""
        with contextlib.suppress(SettingError):
            if self._settings.oom_score_adj != "no":
                self.adjust_oom_score(_CHILD)
