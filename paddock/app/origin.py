"""Where a child comes from, and what the run that spawned it is told."""

from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from paddock.app.events import AppEvent, Kind
from paddock.app.execution import AppResult, Execution
from paddock.app.spawning import SpawnRequest

if TYPE_CHECKING:
    from paddock.app.session import AppSession


@dataclass(frozen=True, slots=True)
class Origin:
    """A child's parent, and the parent's run that was going on; None if none was."""

    parent: "AppSession"
    run: Execution | None
    request: SpawnRequest
    spawn_id: str = field(default_factory=lambda: token_hex(8))

    def begun(self, child: "AppSession") -> None:
        """Tells the parent's run, before all events of the child."""
        self._tell("spawn_start", child)

    def forward(self, event: AppEvent) -> None:
        """Adds an event of the child's run to the parent's."""
        if self.run is not None:
            self.run.forward(replace(event, spawn_path=(self.spawn_id, *event.spawn_path)))

    def ended(
        self, child: "AppSession", result: AppResult | None, error: BaseException | None
    ) -> None:
        """Removes the child from its parent, and tells the run after all its events."""
        self.parent.spawned.remove(child)
        wrong = result.reason if result else str(error) or type(error).__name__
        self._tell(
            "spawn_end",
            child,
            text=result.text if result else "",
            is_error=result is None or result.status == "aborted",
            error=wrong,
            tokens_used=child.usage.input_tokens + child.usage.output_tokens,
        )

    def _tell(self, kind: Kind, child: "AppSession", **data: Any) -> None:
        if self.run is None:
            return
        call, label = self.request.call, self.request.label
        named = {"spawn_id": self.spawn_id, "child_session_id": child.id, "label": label}
        self.run.tell(AppEvent(kind, {**named, "call_id": call.id if call else None, **data}))
