"""What callers said of the processes that they started, and where these are found again."""

from collections.abc import Iterator

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.codes import NoProcessError
from api.compat.e2b.inside.messages import Config, Selector, Start
from api.compat.e2b.inside.numbers import number_of
from api.compat.notes import Notes
from orchestrator.ground.errors import ValidationError
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.code.context import is_runner
from orchestrator.work.terminals.open_terminal import OpenTerminal

# Of one session.
_MOST = 512
# Characters and arguments of one request. What a session's variables may hold is not kept here.
_MOST_TEXT = 8 * 1024
_MOST_ARGUMENTS = 256
_SHOWN = 256

Process = Command | OpenTerminal


class Started:
    """The latest requests of each session to start processes, by the processes' ids."""

    def __init__(self) -> None:
        self._notes: Notes[str, tuple[Config, str | None]] = Notes(_MOST)

    def note(self, session: Session, process_id: str, given: Start) -> None:
        """What a process was started with, except for its variables; of long requests, less."""
        asked = given.process
        size = len(asked.cmd) + len(asked.cwd or "") + sum(map(len, asked.args))
        if size > _MOST_TEXT or len(asked.args) > _MOST_ARGUMENTS:
            config = Config(cmd=asked.cmd[:_SHOWN])
        else:
            config = asked.model_copy(update={"envs": {}})
        self._notes.put(session, process_id, (config, given.tag))

    def config(self, session: Session, process_id: str) -> Config | None:
        """What a process was started with, if that is known."""
        found = self._notes.get(session.key, process_id)
        return None if found is None else found[0]

    def tag(self, session: Session, process_id: str) -> str | None:
        """A process's tag."""
        found = self._notes.get(session.key, process_id)
        return None if found is None else found[1]


def running(inside: Inside) -> Iterator[Process]:
    """The session's commands and shells that have not ended, oldest first."""
    yield from (command for command in inside.session.running if not is_runner(command))
    yield from inside.plane.terminals.live(inside.session)


def find(inside: Inside, selector: Selector) -> Process:
    """The process that is meant. Raises: ValidationError, NoProcessError."""
    if selector.pid is None and selector.tag is None:
        raise ValidationError("process must have a pid or a tag", field="process")
    started = inside.context.kept.of(Started)
    for process in running(inside):
        if selector.pid is not None:
            if number_of(process.id) == selector.pid:
                return process
        elif started.tag(inside.session, process.id) == selector.tag:
            return process
    meant = f"pid {selector.pid}" if selector.pid is not None else f"tag {selector.tag}"
    raise NoProcessError(f"process with {meant} not found")
