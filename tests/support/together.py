"""Files that one worker runs, one after the other, because they share what takes long to make."""

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

# They use one real cluster, which each worker would make for itself: 20 s of the processor's time.
OF_A_CLUSTER = frozenset(
    (
        *("test_database_away.py", "test_losses.py", "test_machines.py", "test_moves.py"),
        *("test_paused.py", "test_recovery.py"),
    )
)


class TogetherScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """As `--dist loadfile`, but for files that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return belongs(nodeid.split("::", 1)[0])


def belongs(file: str) -> str:
    """What a file's tests are run with: themselves, or the files of a cluster."""
    path = PurePath(file)
    if path.parent.name == "cluster" and path.name in OF_A_CLUSTER:
        return str(path.parent)
    return file
