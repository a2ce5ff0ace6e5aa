"""Whether the level files can be in force together, on this host."""

from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator.host.engine.runtimes import unknown_runtime
from orchestrator.rules.policy.level_file import LevelFile


def check_files(
    files: Mapping[str, LevelFile],
    runtimes: Collection[str] | None,
    *,
    packaged: Path,
    cluster: bool,
) -> None:
    """Raises ConfigError that names the file, the line and the field of the first that can't be.

    `packaged` has our own files; `runtimes` and `cluster` are as in `load_levels`.
    """
    _check_ranks(files, packaged)
    _check_runtimes(files, runtimes)
    _check_durability(files, cluster=cluster)


def _check_ranks(files: Mapping[str, LevelFile], packaged: Path) -> None:
    """Raises ConfigError if two levels have the same rank, which would leave them unordered."""
    taken: dict[int, str] = {}
    # Report the operator's file rather than the packaged one.
    for name, file in sorted(files.items(), key=lambda item: item[1].path.parent != packaged):
        rank = file.table.rank
        if rank in taken:
            raise file.error(("rank",), f"{rank} is also the rank of {taken[rank]}")
        taken[rank] = name


def _check_runtimes(files: Mapping[str, LevelFile], runtimes: Collection[str] | None) -> None:
    """Raises ConfigError if a level names a runtime that the engine does not have."""
    for file in files.values():
        refused = unknown_runtime(file.table.runtime, runtimes)
        if refused is not None:
            raise file.error(("runtime",), refused)


def _check_durability(files: Mapping[str, LevelFile], *, cluster: bool) -> None:
    """Raises ConfigError if a level promises more than one machine alone can keep."""
    for file in files.values():
        if file.table.durability == "cluster" and not cluster:
            raise file.error(
                ("durability",),
                'can be "cluster" only on a node of a cluster: set PADDOCK_CLUSTER, or leave it at'
                ' "node"',
            )
