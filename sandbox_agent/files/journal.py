"""Files that change together, even if the sandbox is killed meanwhile. Runs in a file worker.

The new contents get names of their own beside the files that they will be, and a journal in the
workspace lists them. Once the journal says `decided`, all changes happen: the next worker that
finds it completes them. Before that, it removes what was prepared. Only a program that may write in
the workspace can write a journal, and with it do no more than by itself.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import ranges
from sandbox_agent.files.condition import Condition
from sandbox_agent.files.draft import Draft, hidden_name
from sandbox_agent.files.places import Place, Places, open_in, open_parent

# As the names of new contents, so that watches do not tell them. The second one takes the place of
# the first when it is complete.
NAME, _NEXT = ".paddock-0000000000000000", ".paddock-0000000000000001"
_NEW_NAME = re.compile(r"\.paddock-[0-9a-f]{16}")
_MOST_BYTES = 16 * 1024 * 1024


class Step(NamedTuple):
    """What happens to a file: it becomes its new content, or goes away in that version."""

    path: str
    content: str | None
    version: str | None = None


class Journal:
    """The steps of one change."""

    def __init__(self, places: Places, removed: Mapping[str, str], written: list[str]) -> None:
        """`removed` are the versions of the files that go away."""
        self._places = places
        self.steps = [Step(path, hidden_name()) for path in written]
        self.steps += [Step(path, None, version) for path, version in removed.items()]

    def write(self, prepare: Callable[[Step], None]) -> None:
        """Has each new content prepared, and decides that all steps happen.

        If anything fails, nothing is left. Raises: AgentError, OSError.
        """
        try:
            self._say(decided=False)
            for step in self.steps:
                if step.content is not None:
                    prepare(step)
            self._say(decided=True)
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Removes what was prepared and has not happened, and the journal."""
        for step in self.steps:
            _drop(self._places, step)
        _remove(_workspace(self._places))

    def take(self, step: Step) -> None:
        """Lets one step happen. Raises: AgentError, OSError."""
        _take(self._places, step)

    def _say(self, *, decided: bool) -> None:
        data = json.dumps({"decided": decided, "steps": self.steps}).encode()
        place = _workspace(self._places)
        workspace = place.directory
        draft = Draft(place)
        try:
            draft.write(data)
            draft.link(workspace, _NEXT if decided else NAME)
            if decided:
                os.rename(_NEXT, NAME, src_dir_fd=workspace, dst_dir_fd=workspace)
        finally:
            os.close(draft.fd)


def recover(places: Places, together: Condition) -> int:
    """Completes or takes back what a worker that was killed has begun; how many files changed."""
    if not os.path.lexists(f"/proc/self/fd/{_workspace(places).directory}/{NAME}"):
        return 0
    with together.held():
        return recover_alone(places)


def recover_alone(places: Places) -> int:
    """The same for a caller that holds the lock."""
    decided, steps = _read(_workspace(places))
    for step in steps:
        # A step whose directory has gone, or that is forbidden, does not keep others back.
        with suppress(AgentError, OSError):
            if decided:
                _take(places, step)
        _drop(places, step)
    _remove(_workspace(places))
    return len(steps) if decided else 0


def _workspace(places: Places) -> Place:
    return places.find(".", writes=False)[0]


def _remove(workspace: Place) -> None:
    """Removes the journal; in a workspace that can't be written it stays."""
    for name in (_NEXT, NAME):
        with suppress(OSError):
            os.unlink(name, dir_fd=workspace.directory)


def _read(workspace: Place) -> tuple[bool, list[Step]]:
    """Whether the steps are decided, and the steps; none if it is no journal."""
    try:
        fd = open_in(workspace._replace(links=False), NAME, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            said = json.loads(file.read(_MOST_BYTES))
        steps = [Step(*step) for step in said["steps"]]
        if not all(map(_is_step, steps)):
            raise ValueError("not steps")
        return said["decided"] is True, steps
    except (AgentError, OSError, LookupError, TypeError, ValueError, RecursionError):
        return False, []


def _is_step(step: Step) -> bool:
    named = step.content is None or _NEW_NAME.fullmatch(step.content) is not None
    return isinstance(step.path, str) and named and isinstance(step.version, str | None)


def _take(places: Places, step: Step) -> None:
    directory, name = open_parent(*places.find(step.path, writes=True))
    try:
        if step.content is None:
            if ranges.version(os.lstat(name, dir_fd=directory)) == step.version:
                os.unlink(name, dir_fd=directory)
            return
        both = {"src_dir_fd": directory, "dst_dir_fd": directory}
        try:
            os.link(step.content, name, **both, follow_symlinks=False)
        except FileExistsError:
            os.rename(step.content, name, **both)
    finally:
        os.close(directory)
    _drop(places, step)


def _drop(places: Places, step: Step) -> None:
    """Removes a new content's own name, if it is still there."""
    if step.content is None:
        return
    with suppress(AgentError, OSError):
        directory, _ = open_parent(*places.find(step.path, writes=True))
        try:
            os.unlink(step.content, dir_fd=directory)
        finally:
            os.close(directory)
