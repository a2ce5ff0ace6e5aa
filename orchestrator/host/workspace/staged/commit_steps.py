"""Which staged changes a commit takes, and the steps that make them: pure decisions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from orchestrator.host.workspace.staged.changes import Change, RefusedEntry

# A staged directory is writable for the steps in it, and gets its mode at the end.
_OPEN = 0o700


class Step(NamedTuple):
    """One step. `number` names its files among the new and the old ones; modes are octal bits.

    | kind   | what it does                                                 |
    |--------|--------------------------------------------------------------|
    | mode   | gives the directory `ref` another mode                       |
    | remove | moves what is at `ref`, of any kind, to the old ones         |
    | make   | makes the directory `ref`                                    |
    | put    | moves what is at `ref` to the old ones, and the new one there |
    """

    kind: str
    ref: str
    number: int
    mode: int = 0
    old_mode: int = 0


class Expected(NamedTuple):
    """What a reviewer saw of a change; None for what the change does not have."""

    fingerprint: str | None
    mode: int | None


class CommitSelection(NamedTuple):
    """What a commit takes: all, or what is at or below `paths`, or exactly what was `expected`."""

    paths: Sequence[str] | None
    expected: Mapping[str, Expected] | None

    def takes(self, ref: str) -> bool:
        """Whether it takes the change at that path."""
        if self.paths is not None:
            return any(ref == path or ref.startswith(f"{path}/") for path in self.paths)
        return self.expected is None or ref in self.expected

    def touches(self, ref: str) -> bool:
        """Whether a refused entry at that path prevents the commit."""
        if self.takes(ref):
            return True
        wanted = self.paths if self.paths is not None else self.expected or ()
        return any(path.startswith(f"{ref}/") for path in wanted)


def missing(selection: CommitSelection, changes: Iterable[Change]) -> list[str]:
    """The selected paths at which nothing is staged."""
    refs = {change.ref for change in changes}
    if selection.paths is not None:
        return [
            path
            for path in selection.paths
            if not any(ref == path or ref.startswith(f"{path}/") for ref in refs)
        ]
    return sorted(set(selection.expected or ()) - refs)


def with_parents(
    changes: Sequence[Change], selection: CommitSelection
) -> tuple[list[Change], list[str]]:
    """The changes that are taken, in order, and the paths that must be taken, too, but are not.

    A new directory is taken with what is taken in it. One that replaces something must be taken
    explicitly.
    """
    by_ref = {change.ref: change for change in changes}
    taken = {change.ref for change in changes if selection.takes(change.ref)}
    lacking = []
    for ref in sorted(taken):
        for parent in parents(ref):
            change = by_ref.get(parent)
            if change is None or parent in taken:
                continue
            if change.replaces:
                lacking.append(parent)
            elif change.base is None:
                taken.add(parent)
    return [change for change in changes if change.ref in taken], sorted(set(lacking))


def parents(ref: str) -> Iterable[str]:
    """The directories above it, outermost first."""
    parts = ref.split("/")[:-1]
    return ("/".join(parts[: depth + 1]) for depth in range(len(parts)))


def steps_for(changes: Sequence[Change], closed: Mapping[str, int]) -> list[Step]:
    """The steps that make the changes.

    `closed` are the modes of existing directories above them that their owner can't write; the
    first steps make these writable. The last steps give all directories their modes, innermost
    first.
    """
    steps, modes = [], []
    for ref, mode in sorted(closed.items()):
        steps.append(Step("mode", ref, 0, mode | _OPEN, mode))
        modes.append(Step("mode", ref, 0, mode, mode | _OPEN))
    for number, change in enumerate(changes, 1):
        if change.type == "delete":
            steps.append(Step("remove", change.ref, number))
        elif change.kind != "directory":
            steps.append(Step("put", change.ref, number))
        elif change.base is None or change.replaces:
            if change.replaces:
                steps.append(Step("remove", change.ref, number))
            # By this number, an undo finds out whether what it replaces was moved.
            moved = number if change.replaces else 0
            steps.append(Step("make", change.ref, moved, _OPEN))
            modes.append(Step("mode", change.ref, moved, change.mode, _OPEN))
        else:
            old = change.base_mode or 0
            modes = [step for step in modes if step.ref != change.ref]
            if change.ref not in closed:
                steps.append(Step("mode", change.ref, 0, old | _OPEN, old))
            modes.append(Step("mode", change.ref, 0, change.mode, old | _OPEN))
    return steps + sorted(modes, key=lambda step: step.ref.count("/"), reverse=True)


def counted(changes: Iterable[Change]) -> dict[str, int]:
    """The number of writes and of deletions, by type."""
    found = {"write": 0, "delete": 0}
    for change in changes:
        found[change.type] += 1
    return found


def blocked(refused: Iterable[RefusedEntry], selection: CommitSelection) -> list[RefusedEntry]:
    """The refused entries that prevent a commit."""
    return [each for each in refused if selection.touches(each.ref)]


def refs_of(changes: Collection[Change]) -> list[str]:
    """Their paths."""
    return [change.ref for change in changes]
