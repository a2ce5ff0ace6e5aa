"""Asks the helper that reads and commits what is staged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace.helper import Helper, HelperError, LongAnswerError
from orchestrator.host.workspace.staged import entry
from orchestrator.host.workspace.staging_area import StagingArea

SHOW_SECONDS = 60
COMMIT_SECONDS = 600


class ProposalsError(PaddockError):
    """What is staged can't be read or committed now. The call may be repeated."""

    code = "sandbox_unavailable"


def run_helper(
    data: Path, area: StagingArea, uid: int, request: Mapping[str, Any], seconds: int
) -> dict[str, Any]:
    """The helper's answer to a request; blocks, no longer than `seconds`.

    Raises: ProposalsError; ConflictError for a commit that was not made.
    """
    places = {"upper": area.upper, "lower": data, "area": area.commit}
    helper = Helper(entry.__name__, uid, seconds)
    try:
        answer = helper.ask(request, places, asked=FaultPoint.COMMIT_ASKED.reached)
    except LongAnswerError:
        raise ProposalsError("more is staged than can be shown") from None
    except HelperError:
        text = "reading what is staged took too long, or failed: try again"
        raise ProposalsError(text) from None
    except OSError as error:
        raise ProposalsError(f"what is staged can't be read: {error.strerror}") from error
    if "error" not in answer or "settled" in answer:
        return answer
    reason = str(answer["error"])[:500]
    if answer.get("kind") == "commit":
        raise ConflictError(reason)
    raise ProposalsError(f"what is staged can't be read: {reason}")


def settle(data: Path, area: StagingArea, uid: int) -> dict[str, Any]:
    """Finishes or undoes a commit that was interrupted; `settled` is null if there was none.

    Raises: ProposalsError if neither is possible now; the workspace must not be used then.
    """
    return run_helper(data, area, uid, {"action": "settle"}, COMMIT_SECONDS)
