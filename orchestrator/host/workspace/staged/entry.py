"""The helper's main function: gives up all rights, then does what one request says."""

import fcntl
import json
import os
import resource
import sys
from typing import Any

from orchestrator.host.workspace.purge_helper import give_up_privileges
from orchestrator.host.workspace.staged import base, committing, showing
from orchestrator.host.workspace.staged.committing import CommitError, Staged
from orchestrator.host.workspace.staged.planning import CommitSelection, Expected
from orchestrator.host.workspace.staged.walking import TooMuchError

_MEMORY_BYTES = 1024 * 1024 * 1024
_FILES = 1024


def main(arguments: list[str]) -> int:
    """`UID SECONDS PARENT UPPER LOWER AREA`: the last three are open directories.

    The request is JSON on standard input, the answer JSON on standard output.
    """
    uid, seconds, parent, *handles = map(int, arguments)
    try:
        _limit(seconds)
        give_up_privileges(uid)
        if os.getppid() != parent:
            return 1  # it died before its death was to end this process, too
        answer = _perform(json.load(sys.stdin), Staged(*handles))
    except CommitError as error:
        answer = {"error": str(error), "kind": "commit"}
    except TooMuchError:
        answer = {"error": "more is staged than can be examined", "kind": "too_much"}
    except (OSError, MemoryError, ValueError, RecursionError) as error:
        # Leave names out: the session chose them.
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        answer = {"error": why or type(error).__name__, "kind": "failed"}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def _limit(seconds: int) -> None:
    """Bounds what a hostile staging area can make this process use."""
    for kind, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    os.umask(0o077)


def _perform(request: dict[str, Any], staged: Staged) -> dict[str, Any]:
    action = request["action"]
    if action == "show":
        known = base.read(staged.area)
        return showing.page(staged.upper, staged.lower, known, request["after"], request["limit"])
    # Another helper of the session, which was given up because its disk hung, may still be at work.
    fcntl.flock(staged.area, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if action == "settle":
        return committing.settle(staged, lambda: None)
    selection = _selection(request)
    if action == "prepare":
        return committing.prepare(staged, selection).told()
    return committing.commit(staged, selection, request["digest"], lambda: None)


def _selection(request: dict[str, Any]) -> CommitSelection:
    expected = request["expected"]
    wanted = None
    if expected is not None:
        wanted = {ref: Expected(*found) for ref, found in expected.items()}
    return CommitSelection(request["paths"], wanted)
