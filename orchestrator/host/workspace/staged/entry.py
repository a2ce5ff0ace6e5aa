"""What a helper does with staged work: shows, prepares, commits or settles, as one request says."""

import fcntl
from typing import Any

from orchestrator.host.workspace.staged import base, commit, review_page
from orchestrator.host.workspace.staged.changes import TooMuchError
from orchestrator.host.workspace.staged.commit import CommitError, Staged
from orchestrator.host.workspace.staged.commit_steps import CommitSelection, Expected


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """The answer. The request names open directories: `upper`, `lower` and `area`.

    Raises: OSError, ValueError.
    """
    try:
        return _perform(request, Staged(request["upper"], request["lower"], request["area"]))
    except CommitError as error:
        return {"error": str(error), "kind": "commit"}
    except TooMuchError:
        return {"error": "more is staged than can be examined", "kind": "too_much"}


def _perform(request: dict[str, Any], staged: Staged) -> dict[str, Any]:
    action = request["action"]
    if action == "show":
        known = base.read(staged.area)
        return review_page.page(
            staged.upper, staged.lower, known, request["after"], request["limit"]
        )
    # Another helper of the session may still be at work: one that was given up when its disk hung.
    fcntl.flock(staged.area, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if action == "settle":
        return commit.settle(staged, lambda: None)
    selection = _selection(request)
    if action == "prepare":
        return commit.prepare(staged, selection).report()
    return commit.commit(staged, selection, request["digest"], lambda: None)


def _selection(request: dict[str, Any]) -> CommitSelection:
    expected = request["expected"]
    wanted = None
    if expected is not None:
        wanted = {ref: Expected(*found) for ref, found in expected.items()}
    return CommitSelection(request["paths"], wanted)
