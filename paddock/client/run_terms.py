"""What may be asked of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from paddock.client.requests import check_terms, given


class RunTerms(TypedDict, total=False):
    """The arguments of a run besides its messages. None, or none at all, means the default.

    model: one of `paddock.models.list()`; None: the first one.
    system: instructions instead of the usual ones.
    max_ticks: the most calls of the model; None: 10.
    max_timeline_entries: the most that are kept of the timeline; None: 500.
    permission_level: changes the session's level first; needs a key.
    tools: tools of yours for this run, each with `name`, `description`, `input_schema`, `url`,
        `secret` and maybe `timeout`; needs a key.
    timeout: the seconds after which the run is stopped; None: 3,600.
    """

    model: str | None
    system: str | None
    max_ticks: int | None
    max_timeline_entries: int | None
    permission_level: str | None
    tools: Sequence[Mapping[str, Any]] | None
    timeout: int | None


def run_members(terms: RunTerms) -> dict[str, Any]:
    """The members of a request with these terms. Raises: TypeError for an unknown one."""
    check_terms("run", terms, RunTerms)
    return given(**terms)


def user_messages(texts: Iterable[str]) -> dict[str, Any]:
    """The member of a request that has the user's messages."""
    return {"messages": [{"role": "user", "content": text} for text in texts]}
