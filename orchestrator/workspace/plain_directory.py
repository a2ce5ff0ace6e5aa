"""A workspace as a plain directory: nothing holds it to a size."""

from pathlib import Path

from orchestrator.workspace.purge import purge_directory
from orchestrator.workspace.quota import DiskUsage
from orchestrator.workspace.slots import make_data, make_slot


class PlainDirectories:
    """Slots whose data is a directory of the host's own file system."""

    def data(self, slot: Path) -> Path:
        """The directory in the slot."""
        return slot / "data"

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Makes what is missing. Raises: OSError."""
        del size
        make_slot(slot)
        return make_data(self.data(slot), uid)

    def mount(self, slot: Path) -> None:
        """It is visible as long as it exists."""

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """Nothing counts it."""
        return None

    def remove(self, slot: Path, uid: int) -> None:
        """Removes its files as their own user. Raises: PurgeError."""
        purge_directory(slot, self.data(slot), uid)
