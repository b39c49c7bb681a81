"""What commands get from the owner of a directory: files always; a server when they first need one.

    QuietServices    while no socket is in use    the services of a server start one
    OwnerServices    around a server              rillet.store.sharing.served_owner
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rillet.host.file_services import FileServices
from rillet.host.memory_services import MemoryServices
from rillet.host.process_memory import memory
from rillet.protocol.peer_replies import Replies
from rillet.runtime.engine_services import DefaultServices, EngineServices

if TYPE_CHECKING:
    from rillet.store.sharing.owner import Owner


class OwnerFileServices(FileServices):
    """The services of the owner's files. SHUTDOWN is refused: the process that opened the store closes it."""

    _owner: Owner

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        return DefaultServices.shutdown(self, save=save, nosave=nosave, force=force, now=now)

    def setting_changed(self, name: str) -> None:
        self._owner.setting_changed(name)


class QuietServices(OwnerFileServices, MemoryServices):
    """The services of an owner that no client uses. One that needs sockets starts the server, which then provides
    it."""

    def __init__(self, owner: Owner) -> None:
        MemoryServices.__init__(self, owner.engine, owner.lock)
        self._owner, self._files = owner, owner.files

    def _served(self) -> EngineServices:
        self._owner.server()
        return self._owner.engine.services

    def log_line(self, text: str, level: str = "warning") -> None:
        DefaultServices.log_line(self, text, level)

    def memory(self) -> dict[str, int]:
        return memory()

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        def of_server(section: str) -> Callable[[], Mapping[str, Any]]:
            return lambda: self._served().info_sections()[section]()

        return {**super().info_sections(), **{name: of_server(name) for name in ("server", "clients", "stats")}}

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        return self._served().exchange(address, setup, database, commands, timeout_ms)

    def follow(self, host: str, port: int) -> None:
        self._served().follow(host, port)

    def promote(self) -> None:
        self._served().promote()

    def pause(self, until_ms: int, writes_only: bool) -> None:
        self._served().pause(until_ms, writes_only)

    def pause_cron(self, paused: bool) -> None:
        self._served().pause_cron(paused)

    def stop_process(self) -> None:
        self._served().stop_process()
