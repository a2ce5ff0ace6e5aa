"""A shell of Paddock's session that keeps its state, as SWE-ReX has it: a session by its name."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from api.compat.call import Call
from api.compat.swerex.expectation import literal
from api.compat.swerex.failures import exception
from api.operations import shells
from api.shape.answers import Created
from api.shape.objects import validated
from orchestrator.ground.errors import ConflictError, NotFoundError
from paddock.contract.requests import NoBody
from paddock.contract.shells import (
    MOST_RUN_SECONDS,
    ShellAnswer,
    ShellBody,
    ShellInputBody,
    ShellRunBody,
    ShellUntil,
)

# Of the names of these shells, so that `close` ends no others.
PREFIX = "swerex."
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,57}")
# Characters of what a command prints while it is waited for, however long that takes.
MOST_OUTPUT = 2 * 2**20
_LEAST_SECONDS = 0.001
_MOST_NOTICE = 4096
_MOST_NOTICES = 1024


def shell_name(session: str) -> str:
    """The name of the shell that a client calls a session, whatever text it uses."""
    if _PLAIN.fullmatch(session):
        return PREFIX + session
    digest = hashlib.sha256(session.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{PREFIX}-{digest[:40]}"


class _Notices:
    """What the next answer of a shell has before its own output."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def put(self, shell: tuple[str, str], text: str) -> None:
        """Keeps a text; of very many shells, the oldest are forgotten."""
        self._texts[shell] = text[-_MOST_NOTICE:]
        if len(self._texts) > _MOST_NOTICES:
            self._texts.popitem(last=False)

    def take(self, shell: tuple[str, str]) -> str:
        """The text, once."""
        return self._texts.pop(shell, "")


class Shell:
    """One shell, by a client's name of it."""

    def __init__(self, call: Call, session: str) -> None:
        self._call = call
        self._session = session
        self._name = shell_name(session)
        self._place = call.context.session().key, self._name
        self._context = replace(call.context, path={**call.context.path, "name": self._name})

    async def create(self) -> None:
        """Raises: SessionExistsError."""
        exists = exception("SessionExistsError", f"session {self._session} already exists")
        try:
            made = await self._call.done(shells.create_shell, body=ShellBody(name=self._name))
        except ConflictError as error:
            if "pty" in error.fields and "reason" not in error.fields:
                raise exists from None
            raise
        if not isinstance(made, Created):
            raise exists

    async def run(self, command: str, timeout: float | None, expect: list[str]) -> ShellAnswer:
        """Runs a command; at the end of its time it goes on."""
        return await self._until(shells.run_in_shell, {"command": command}, timeout, expect)

    async def type(self, text: str, timeout: float | None, expect: list[str]) -> ShellAnswer:
        """Types into the program that runs, or only waits for it."""
        return await self._until(shells.give_shell_input, {"text": text}, timeout, expect)

    def before(self, answer: ShellAnswer) -> str:
        """What was printed, up to the text that was expected; the next answer has what follows."""
        if answer.matched is None:
            return answer.output
        before, _, after = answer.output.partition(answer.matched)
        if after:
            self.note(after)
        return before

    def note(self, text: str) -> None:
        """Keeps a text for the next answer, such as what a prompt would tell of a killed job."""
        self._call.context.kept.of(_Notices).put(self._place, text)

    def take_notice(self) -> str:
        """What was kept."""
        return self._call.context.kept.of(_Notices).take(self._place)

    async def is_running(self) -> bool:
        """Whether a command runs."""
        with self._known():
            shown = await self._call.done(shells.read_shell, context=self._context, name=self._name)
        return bool(shown.running)

    async def interrupt(self) -> None:
        """Sends an interrupt to what runs."""
        with self._known():
            await self._call.done(
                shells.interrupt_shell, context=self._context, name=self._name, body=NoBody()
            )

    async def stop(self) -> ShellAnswer:
        """Ends the command that runs, if need be with its shell."""
        body = validated(ShellInputBody, {"text": "", "timeout": _LEAST_SECONDS, "expect": []})
        return await self._asked(shells.give_shell_input, body)

    async def end(self) -> None:
        """Ends the shell."""
        self.take_notice()
        with self._known():
            await self._call.done(shells.close_shell, context=self._context, name=self._name)

    async def _until(
        self, handler: Any, given: dict[str, Any], timeout: float | None, expect: list[str]
    ) -> ShellAnswer:
        """The answer; one that takes longer than an operation may is waited for in parts."""
        left = float("inf") if timeout is None else max(timeout, _LEAST_SECONDS)
        texts, output, lost = [literal(text) for text in expect], "", 0
        while True:
            seconds = min(left, float(MOST_RUN_SECONDS))
            model: type[ShellUntil] = ShellRunBody if "command" in given else ShellInputBody
            terms = {"timeout": seconds, "expect": texts, "at_timeout": "continue"}
            answer = await self._asked(handler, validated(model, given | terms))
            output, left = output + answer.output, left - seconds
            lost += max(0, len(output) - MOST_OUTPUT)
            output = output[-MOST_OUTPUT:]
            if answer.status != "timed_out" or left <= 0:
                missing = f"[{lost} characters of output are not kept]\n" if lost else ""
                return answer.model_copy(update={"output": missing + output})
            handler, given = shells.give_shell_input, {"text": ""}

    async def _asked(self, handler: Any, body: ShellUntil) -> ShellAnswer:
        with self._known():
            answer: ShellAnswer = await self._call.done(
                handler, context=self._context, name=self._name, body=body
            )
        return answer

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Raises: SessionDoesNotExistError if there is no such shell, or it has ended."""
        try:
            yield
        except (NotFoundError, ConflictError) as error:
            if isinstance(error, ConflictError) and "reason" not in error.fields:
                raise
            text = f"session {self._session!r} does not exist: {error.detail}"
            raise exception("SessionDoesNotExistError", text) from None
