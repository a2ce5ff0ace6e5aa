"""What a turn runs: a list of operations, a program in Lisp, or a model."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.programs.turns.json_program import list_program
from orchestrator.programs.turns.lisp.program import LispProgram
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.operations.registry import NAMES, QUERIES
from orchestrator.programs.turns.programs import Program
from orchestrator.programs.turns.runs.conversation import Conversation
from orchestrator.programs.turns.runs.program import run_program
from orchestrator.programs.turns.turn import AgentRun, LispCode, Script


class PreparedScript(NamedTuple):
    """A program that can be driven. `finish` takes what it leaves into the notes."""

    program: Program
    printed: Callable[[], str]
    finish: Callable[[], None]


def prepared(
    script: Script, notes: Notes, conversation: Conversation | None = None
) -> PreparedScript:
    """A run has a conversation.

    Raises: ValidationError for a list that names an unknown operation or argument.
    """
    if conversation is not None:
        return PreparedScript(run_program(conversation), lambda: "", lambda: None)
    if isinstance(script, AgentRun):
        raise ValueError("a run needs a conversation")
    if not isinstance(script, LispCode):
        return PreparedScript(list_program(script), lambda: "", lambda: None)
    lisp = LispProgram(
        script.text, operations=NAMES, session_api=QUERIES, environment=notes.environment
    )

    def finish() -> None:
        notes.environment = lisp.definitions().text

    return PreparedScript(lisp.run(), lambda: lisp.output, finish)


def described(script: Script) -> dict[str, Any]:
    """What is recorded of it."""
    if isinstance(script, AgentRun):
        return {
            "messages": list(script.messages),
            "model": script.model or None,
            "system": script.system,
            "max_ticks": script.max_ticks,
            "max_timeline_entries": script.max_timeline_entries,
            "tools": {each.name: each.url for each in script.tools},
        }
    if not isinstance(script, LispCode):
        return {"operations": len(script)}
    return {"code": script.text}


def describes_run(recorded: Mapping[str, Any]) -> bool:
    """Whether what is recorded of a program says that it is a model."""
    return "max_ticks" in recorded
