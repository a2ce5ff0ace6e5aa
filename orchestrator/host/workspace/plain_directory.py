"""A workspace as a plain directory without a size limit."""

from pathlib import Path

from orchestrator.host.workspace.purge import purge_directory
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.host.workspace.slots import make_data, make_slot
from orchestrator.host.workspace.staging_area import remove_all


class PlainDirectories:
    """Slots whose data is a directory of the host's own file system."""

    def data(self, slot: Path) -> Path:
        """The directory in the slot."""
        return slot / "data"

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Creates what is missing. Raises: OSError."""
        del size
        make_slot(slot)
        return make_data(self.data(slot), uid)

    def mount(self, slot: Path, uid: int) -> None:
        """Does nothing: a plain directory is always visible."""

    def count(self, directory: Path, uid: int) -> None:
        """Does nothing: there is no limit."""

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """None: nothing counts its usage."""
        return None

    def remove(self, slot: Path, uid: int) -> None:
        """Removes the files as their own user. Raises: PurgeError, OSError."""
        remove_all(self.data(slot), uid)
        purge_directory(slot, self.data(slot), uid)
