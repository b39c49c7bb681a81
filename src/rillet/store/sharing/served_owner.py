"""OwnerHost: the host of a directory's owner that has a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.server.host import ServerHost
from rillet.server.server import Server
from rillet.store.sharing.owner_host import FilesOfOwner

if TYPE_CHECKING:
    from rillet.store.sharing.owner import Owner


class OwnerHost(FilesOfOwner, ServerHost):
    """The services of the owner's files, and of its server."""

    def __init__(self, owner: Owner, server: Server) -> None:
        ServerHost.__init__(self, server)
        self._owner, self._files = owner, owner.files


__all__ = ["OwnerHost"]
