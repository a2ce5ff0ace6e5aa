"""Answers the `session` program: the words of a question, and what the program prints."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orchestrator.ground.errors import PaddockError
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.session_policy import PolicyRefusalError
from orchestrator.state.session import Session
from orchestrator.work.proposals.listing import ProposalPage
from paddock.contract.words import Kind

# Bytes of a question, and of what is printed.
MOST_QUESTION_BYTES = 4096
MOST_ANSWER_BYTES = 64 * 1024
NO, WRONG, UNAVAILABLE = 1, 2, 3
UNLIMITED = "unlimited"
USAGE = """\
usage: session [--json] QUESTION

  id                         the session's id
  workspace                  the path of its workspace
  status                     active, paused, ...
  turn-number                the number of the running turn
  budget [KIND]              what is left, of all kinds or of one
  allowed OPERATION [PATH]   whether the policy permits it; exit status 1: it does not
  read-only                  whether the policy permits no writes; exit status 1: it permits some
  proposal-mode              whether writes are proposals; exit status 1: they are not
  proposals                  what is proposed
  propose PATH               write standard input to PATH, if the policy permits it
"""


class AnswerLine(NamedTuple):
    """What the program prints, and its exit status."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""

    def encode(self) -> bytes:
        """One line of JSON."""
        data = json.dumps(self._asdict()).encode() + b"\n"
        if len(data) <= MOST_ANSWER_BYTES:
            return data
        return AnswerLine(UNAVAILABLE, stderr="session: the answer is too long\n").encode()


class QuestionError(ValueError):
    """The line is no question."""


class QuestionAnswer(NamedTuple):
    """An answer as JSON and as text; whether it is a yes decides the exit status."""

    value: Any
    text: str
    yes: bool = True


@dataclass(frozen=True, slots=True)
class Questions:
    """Answers questions about sessions.

    `turn` returns the number of a session's running turn, `staged` what a session proposes.
    """

    turn: Callable[[Session], int | None]
    staged: Callable[[Principal, Session], Awaitable[ProposalPage]]

    async def answer(self, session: Session, line: bytes) -> AnswerLine:
        """The answer to a line that a sandbox sent, whatever it contains."""
        try:
            words = words_of(line)
            as_json = words[:1] == ["--json"]
            words = words[as_json:]
            if not words or words[0] in ("-h", "--help", "help"):
                return AnswerLine(0 if words else WRONG, *(("", USAGE) if not words else (USAGE,)))
            found = await self._found(session, words)
        except QuestionError as error:
            return AnswerLine(WRONG, stderr=f"session: {error}\n{USAGE}")
        except PolicyRefusalError as error:
            refusal = {"allowed": False, "reason": error.detail, "rule": error.fields.get("rule")}
            text = json.dumps(refusal) if as_json else error.detail
            return AnswerLine(NO, stdout=f"{text}\n")
        except PaddockError as error:
            return AnswerLine(UNAVAILABLE, stderr=f"session: {error.detail}\n")
        text = json.dumps(found.value) if as_json else found.text
        return AnswerLine(0 if found.yes else NO, stdout=f"{text}\n" if text else "")

    async def _found(self, session: Session, words: list[str]) -> QuestionAnswer:
        question, args = words[0], words[1:]
        if question == "budget":
            return _budget(session, *_arguments(question, args, 0, 1))
        if question == "allowed":
            operation, *ref = _arguments(question, args, 1, 2)
            session.policy.check(operation, ref=ref[0] if ref else None)
            return QuestionAnswer({"allowed": True}, "allowed")
        _arguments(question, args, 0, 0)
        if question == "proposals":
            asker = Principal("sandbox", Role.HANDLE, session.key, session.owner)
            return _proposals(await self.staged(asker, session))
        if question == "turn-number":
            number = self.turn(session)
            return QuestionAnswer(number, "no turn is running" if number is None else str(number))
        return _fact(session, question)


def words_of(line: bytes) -> list[str]:
    """The words of a line of JSON. Raises: QuestionError."""
    try:
        words = json.loads(line)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise QuestionError("a question is a list of words")
    return words


def _arguments(question: str, args: list[str], least: int, most: int) -> list[str]:
    if not least <= len(args) <= most:
        count = str(least) if least == most else f"{least} or {most}"
        raise QuestionError(f"{_shown(question)} takes {count} arguments, not {len(args)}")
    return args


def _fact(session: Session, question: str) -> QuestionAnswer:
    rules = session.policy.world_rules
    if question == "id":
        return QuestionAnswer(session.id, session.id)
    if question == "workspace":
        return QuestionAnswer(session.workspace_path, session.workspace_path)
    if question == "status":
        return QuestionAnswer(session.status, session.status)
    if question == "read-only":
        return _yes_or_no(rules.read_only)
    if question == "proposal-mode":
        return _yes_or_no(rules.proposal_mode)
    raise QuestionError(f"unknown question: {_shown(question)}")


def _yes_or_no(value: bool) -> QuestionAnswer:
    return QuestionAnswer(value, "yes" if value else "no", value)


def _budget(session: Session, kind: str | None = None) -> QuestionAnswer:
    left: Mapping[Kind, int | float | None] = session.budget.view(datetime.now(UTC)).remaining
    if kind is None:
        width = max(map(len, left))
        lines = [f"{name:<{width}}  {_amount(amount)}" for name, amount in left.items()]
        return QuestionAnswer(dict(left), "\n".join(lines))
    found = next((name for name in left if name == kind), None)
    if found is None:
        raise QuestionError(f"the budget has {', '.join(left)}, not {_shown(kind)}")
    return QuestionAnswer(left[found], _amount(left[found]))


def _amount(amount: float | None) -> str:
    return UNLIMITED if amount is None else f"{amount:.15g}"


def _proposals(page: ProposalPage) -> QuestionAnswer:
    listed: Sequence[dict[str, str]] = [{"type": p.type, "ref": p.ref} for p in page.items]
    # A path may contain a line break.
    return QuestionAnswer(
        listed, "\n".join(f"{each['type']}\t{_shown(each['ref'])}" for each in listed)
    )


def _shown(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)
