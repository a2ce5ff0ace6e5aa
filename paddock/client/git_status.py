"""What `git status --porcelain=v2 --branch -z` prints, read in one pass. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

ChangeKind: TypeAlias = Literal["changed", "renamed", "unmerged", "untracked"]
_KINDS: dict[str, ChangeKind] = {
    "1": "changed",
    "2": "renamed",
    "u": "unmerged",
    "?": "untracked",
}
# How many words come before the path.
_WORDS = {"1": 8, "2": 9, "u": 10, "?": 1}


@dataclass(frozen=True, slots=True)
class GitChange:
    """A file that differs from the last commit.

    Attributes:
        file: its path from the top of the repository; bytes that are not UTF-8 are lone surrogates,
            as in `os.fsdecode`.
        kind: what git tells about it; a copy counts as `renamed`.
        staged: git's letter for the index: `M`, `A`, `D`, `R`, `C`, `T` or `U`; None: unchanged.
        unstaged: the same for the working tree.
        original: where a renamed file was.
    """

    file: str
    kind: ChangeKind
    staged: str | None = None
    unstaged: str | None = None
    original: str | None = None


@dataclass(frozen=True, slots=True)
class GitStatus:
    """The state of a repository.

    Attributes:
        commit: the id of the last commit; None: there is none yet.
        branch: None: no branch is checked out.
        upstream: the branch that it follows, such as `origin/main`.
        ahead: commits that the upstream branch lacks.
        behind: commits of the upstream branch that this one lacks.
        changes: in git's order; files that git ignores are not listed.
    """

    commit: str | None = None
    branch: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    changes: tuple[GitChange, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing differs from the last commit."""
        return not self.changes


def parse_status(printed: bytes) -> GitStatus:
    """The status. Raises: ValueError if it is not in this form."""
    records = iter(printed.decode(errors="surrogateescape").split("\0"))
    branch: dict[str, str] = {}
    changes: list[GitChange] = []
    for record in records:
        if record.startswith("# "):
            name, _, value = record[2:].partition(" ")
            branch[name] = value
        elif record:
            changes.append(_change(record, records))
    ahead, behind = _distance(branch.get("branch.ab", "+0 -0"))
    return GitStatus(
        commit=_unless("(initial)", branch.get("branch.oid")),
        branch=_unless("(detached)", branch.get("branch.head")),
        upstream=branch.get("branch.upstream"),
        ahead=ahead,
        behind=behind,
        changes=tuple(changes),
    )


def _change(record: str, following: Iterator[str]) -> GitChange:
    mark = record[:1]
    if mark not in _KINDS:
        raise ValueError("a record of an unknown kind")
    words = record.split(" ", _WORDS[mark])
    if len(words) <= _WORDS[mark] or words[0] != mark or not words[-1]:
        raise ValueError("a record without a path")
    if mark == "?":
        return GitChange(words[-1], "untracked")
    if len(words[1]) != 2:
        raise ValueError("a record without the two letters of its state")
    staged, unstaged = (None if letter == "." else letter for letter in words[1])
    original = next(following, "") if mark == "2" else None
    if original == "":
        raise ValueError("a renamed file without its former path")
    return GitChange(words[-1], _KINDS[mark], staged, unstaged, original)


def _distance(text: str) -> tuple[int, int]:
    ahead, _, behind = text.partition(" ")
    if ahead[:1] != "+" or behind[:1] != "-":
        raise ValueError("a distance without its signs")
    numbers = ahead[1:], behind[1:]
    if not all(each.isascii() and each.isdigit() and len(each) < 19 for each in numbers):
        raise ValueError("a distance that is not a number")
    return int(numbers[0]), int(numbers[1])


def _unless(none: str, value: str | None) -> str | None:
    return None if value == none else value
