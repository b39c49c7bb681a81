"""OwnerServices: the services of a directory's owner that has a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.server.server import Server
from rillet.server.server_services import ServerServices
from rillet.store.sharing.owner_services import OwnerFileServices

if TYPE_CHECKING:
    from rillet.store.sharing.owner import Owner


class OwnerServices(OwnerFileServices, ServerServices):
    """The services of the owner's files, and of its server."""

    def __init__(self, owner: Owner, server: Server) -> None:
        ServerServices.__init__(self, server)
        self._owner, self._files = owner, owner.files
