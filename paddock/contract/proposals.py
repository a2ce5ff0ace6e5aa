"""Proposals: what a session staged, and what the host commits of it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import Count, Model, Time, example
from paddock.contract.requests import LARGEST_BODY, Body, Query

MOST_PROPOSALS = 1000
MOST_PATHS = 1000
MOST_EXPECTED = 20_000

_NEW = "sha256:b8fd80fc4ef9edd5bc9a13bd4a1dc2d98eb5c1f9d7a1a4b1b6f1fd1d8dc8a5a0"
_OLD = "sha256:1f6a3b0c1f1f0f0b3d5f3c8d4f2b7a09c1e5d6f7a8b9c0d1e2f3a4b5c6d7e8f9"
_PROPOSAL: dict[str, Any] = {
    "type": "write",
    "ref": "src/login.py",
    "kind": "file",
    "mode": "0644",
    "old_mode": "0644",
    "replaces": False,
    "removes": 0,
    "size": 412,
    "binary": False,
    "diff": "--- a/src/login.py\n+++ b/src/login.py\n@@ -1 +1 @@\n-tries = 3\n+tries = 5\n",
    "diff_truncated": False,
    "fingerprint": _NEW,
    "expected_fingerprint": _OLD,
    "base_changed": False,
    "renamed_from": None,
    "timestamp": "2026-03-04T09:30:12.482113Z",
}
_COUNTS = {"write": 1, "delete": 0, "refused": 0}

Fingerprint = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
Mode = Annotated[str, Field(pattern=r"^[0-7]{4}$", max_length=4)]
Ref = Annotated[str, Field(min_length=1, max_length=4096)]


class Proposal(Model):
    """A staged change."""

    model_config = example(_PROPOSAL)

    type: Literal["write", "delete"]
    ref: str = Field(description="Relative to the workspace.")
    kind: str = Field(
        description="file, directory, symlink; of a deletion, what the workspace has."
    )
    mode: Mode | None = Field(description="Its permissions, octal; null for a deletion.")
    old_mode: Mode | None = Field(
        description="The permissions of what the workspace has there; null if that is nothing."
    )
    replaces: bool = Field(
        description="A directory that takes the place of all that the workspace has there."
    )
    removes: Count = Field(
        description="Number of entries of a directory of the workspace that are removed with it."
    )
    size: Count = Field(description="Bytes of a file.")
    binary: bool
    diff: str | None = Field(
        description="Unified, of texts up to 1 MiB; of a link, of its target; null for the rest."
    )
    diff_truncated: bool = Field(
        description="Not all of it is there: a diff has at most 256 KiB, a page 4 MiB."
    )
    fingerprint: Fingerprint | None = Field(
        description="SHA-256 of the staged content, or of a link's target; null for others, and "
        "after the first GiB of a page."
    )
    expected_fingerprint: Fingerprint | None = Field(
        description="The same of what the workspace has there."
    )
    base_changed: bool = Field(
        description="The workspace was changed there behind the session's back: a conflict."
    )
    renamed_from: str | None = Field(
        description="A deleted file of the same page with the same content."
    )
    timestamp: Time = Field(description="When it was written last, as its file says.")


class RefusedProposal(Model):
    """Something staged that can't be committed."""

    model_config = example({"ref": "out", "reason": "it is a FIFO"})

    ref: str = Field(description="Its path; what is no plain text is shown as a code.")
    reason: str


class ProposalCounts(Model):
    """How much is staged in all."""

    model_config = example(_COUNTS)

    write: Count
    delete: Count
    refused: Count


class Proposals(Model):
    """A page of what is staged, in order of paths."""

    model_config = example(
        {
            "items": [_PROPOSAL],
            "next": None,
            "truncated": False,
            "refused": [],
            "counts": _COUNTS,
        }
    )

    items: list[Proposal]
    next: str | None = Field(description="The `after` of the next page.")
    truncated: bool = Field(description="There are more on the next page.")
    refused: list[RefusedProposal] = Field(description="The first 100 of all.")
    counts: ProposalCounts


class ProposalsQuery(Query):
    """Which page to show."""

    after: Annotated[str, Field(max_length=4096)] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_PROPOSALS)] = MOST_PROPOSALS


class ExpectedProposal(Body):
    """What a reviewer saw."""

    fingerprint: Fingerprint | None = None
    mode: Mode | None = None


class CommitBody(Body):
    """What to commit; without members, everything that is staged."""

    MOST_BYTES = LARGEST_BODY

    paths: Annotated[list[Ref], Field(min_length=1, max_length=MOST_PATHS)] | None = Field(
        default=None, description="These, and what is below them."
    )
    expected: (
        Annotated[dict[Ref, ExpectedProposal], Field(min_length=1, max_length=MOST_EXPECTED)] | None
    ) = Field(
        default=None,
        description="What was reviewed, by path: `fingerprint` and `mode` as they were listed. "
        "Without `paths`, exactly these are committed. One that differs is a conflict.",
    )


class ProposalConflict(Model):
    """A path that is not what it was expected to be."""

    model_config = example({"ref": "src/login.py", "expected": None, "actual": _OLD})

    ref: str
    expected: str | None = Field(
        description="The reviewed fingerprint; null if the workspace's own content changed."
    )
    actual: str | None = Field(description="What is there now; null if that is no file.")


class Committed(Model):
    """What was committed."""

    model_config = example({"write": 1, "delete": 0, "paths": ["src/login.py"]})

    write: Count
    delete: Count
    paths: list[str] = Field(description="The first 1,000.")


class RolledBack(Model):
    """What was discarded."""

    model_config = example({"write": 1, "delete": 0, "refused": 0})

    write: Count
    delete: Count
    refused: Count
