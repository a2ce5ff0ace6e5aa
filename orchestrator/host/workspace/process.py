"""Runs the helper that reads and commits what is staged: without rights, and within bounds."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace.staging import StagingArea

_ROOT = Path(orchestrator.__file__).parents[1]
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from orchestrator.host.workspace.staged.entry import main; sys.exit(main(sys.argv[1:]))"
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SHOW_SECONDS = 60
COMMIT_SECONDS = 600
_ANSWER_BYTES = 32 * 1024 * 1024


class ProposalsError(PaddockError):
    """What is staged can't be read or committed now. The call may be repeated."""

    code = "sandbox_unavailable"


def run_helper(
    data: Path, area: StagingArea, uid: int, request: Mapping[str, Any], seconds: int
) -> dict[str, Any]:
    """The helper's answer to a request; blocks, no longer than `seconds`.

    Raises: ProposalsError; ConflictError for a commit that was not made.
    """
    try:
        answer = _ask(data, area, uid, json.dumps(request).encode(), seconds)
    except OSError as error:
        raise ProposalsError(f"what is staged can't be read: {error.strerror}") from error
    if "error" not in answer or "settled" in answer:
        return answer
    said = str(answer["error"])[:500]
    if answer.get("kind") == "commit":
        raise ConflictError(said)
    raise ProposalsError(f"what is staged can't be read: {said}")


def settle(data: Path, area: StagingArea, uid: int) -> dict[str, Any]:
    """Finishes or undoes a commit that was interrupted; `settled` is null if there was none.

    Raises: ProposalsError if neither is possible now; the workspace must not be used then.
    """
    return run_helper(data, area, uid, {"action": "settle"}, COMMIT_SECONDS)


def _ask(data: Path, area: StagingArea, uid: int, request: bytes, seconds: int) -> dict[str, Any]:
    with ExitStack() as opened:
        # By root, which alone can enter the directories above; the helper can't leave these.
        handles = []
        for path in (area.upper, data, area.commit):
            handles.append(os.open(path, _DIRECTORY))
            opened.callback(os.close, handles[-1])
        arguments = [*map(str, (uid, seconds, os.getpid(), *handles))]
        helper = opened.enter_context(
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(_ROOT), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=handles,
            )
        )
        expiry = threading.Timer(seconds, helper.kill)
        expiry.daemon = True
        expiry.start()
        try:
            told = _exchanged(helper, request)
        finally:
            expiry.cancel()
            helper.kill()
    return _parsed(told)


def _exchanged(helper: subprocess.Popen[bytes], request: bytes) -> bytes:
    assert helper.stdin is not None and helper.stdout is not None  # noqa: S101, PT018
    try:
        helper.stdin.write(request)
        helper.stdin.close()
        FaultPoint.COMMIT_ASKED.reached()
    except BrokenPipeError:
        return b""
    return helper.stdout.read(_ANSWER_BYTES + 1)


def _parsed(told: bytes) -> dict[str, Any]:
    """The answer. Raises: ProposalsError if there is none."""
    if not told:
        raise ProposalsError("reading what is staged took too long, or failed: try again")
    if len(told) > _ANSWER_BYTES:
        raise ProposalsError("more is staged than can be shown")
    try:
        answer = json.loads(told)
    except ValueError:
        raise ProposalsError("reading what is staged failed: try again") from None
    if not isinstance(answer, dict):
        raise ProposalsError("reading what is staged failed: try again")
    return answer
