"""Views of runs and timelines."""

from collections.abc import Mapping, Sequence

from api.shape import answers
from api.views import turns
from orchestrator.programs.turns import turn as domain
from orchestrator.programs.turns.runs import timeline
from orchestrator.programs.turns.runs.feed import RunEvent
from paddock.audit.chain import Event
from paddock.contract.base import Model
from paddock.contract.runs import Run, TimelineEntry, TimelineToolCall


def run(shown: domain.TurnRecord, operations: Sequence[Event]) -> Run:
    """A run with its operations."""
    value = (shown.outcome or {}).get("value")
    text = value if isinstance(value, str) else None
    return Run.model_validate({**dict(turns.turn(shown, operations)), "text": text})


def entry(shown: timeline.TimelineEntry) -> TimelineEntry:
    """One message."""
    message = shown.message
    calls = [TimelineToolCall(**each._asdict()) for each in message.calls]
    return TimelineEntry.model_validate(
        {
            "seq": shown.seq,
            "turn_number": shown.turn,
            "time": shown.time,
            "role": message.role,
            "content": message.content,
            "tool_calls": calls,
            "tool_call_id": message.call,
        }
    )


def run_event(kinds: Mapping[str, type[Model]], number: int, event: RunEvent) -> answers.Event:
    """What happened in a run, as an event of a stream; `kinds` are the models by event names."""
    return answers.Event(event.name, kinds[event.name].model_validate(event.members), number)
