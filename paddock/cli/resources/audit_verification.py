"""Verifies chains locally (exports, archives, and current ones), and shows the verdicts."""

from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.output import STYLES, print_fields, print_json, print_line

if TYPE_CHECKING:
    from paddock.audit.anchors import Anchors
    from paddock.audit.chain import Chain, Verdict
    from paddock.client import Paddock


_EMPTY = "the chain has no events"


class Noted:
    """What is known about a chain from elsewhere: one event, and anchors.

    `notes` collects further information for the reader of the verdict.
    """

    def __init__(
        self, seq: int | None, hash: str | None, anchors: Path | None, public_key: str | None
    ) -> None:
        """Raises: Failure if the anchors are not intact, or not signed by that key."""
        from paddock.audit.chain import Anchor

        self.anchors = None if anchors is None else _anchors(anchors, public_key)
        self.notes: list[str] = []
        self._wanted = {head.seq for head in self.anchors.heads} if self.anchors else set[int]()
        self._noted = None if seq is None or hash is None else Anchor(seq, hash)

    def chain(self, *, noted: bool = True) -> "Chain":
        """Follows a chain, which must contain the noted event."""
        from paddock.audit.chain import Chain

        return Chain(self._noted if noted else None, self._wanted)

    def of_session(self, chain: "Chain", session_id: str, incarnation: int | None) -> "Verdict":
        """The verdict after following the chain, which must contain the session's anchors."""
        from paddock.audit.anchors import judged

        if self.anchors is None:
            return chain.verdict()
        if incarnation is None and self.anchors.sessions().get(session_id):
            raise Failure("its events do not say which session of that id it is: --incarnation N")
        numbered = {}
        if incarnation is not None:
            numbered = self.anchors.of_incarnation(session_id, incarnation)
        others = self.anchors.of_incarnation(session_id, None)
        verdict = judged(chain.verdict(), chain.seen, numbered, others)
        if verdict.ok and not numbered:
            self.notes.append(
                f"The anchors of {session_id} are from an earlier version: they do not say to "
                "which session of that id they belong."
            )
        return verdict

    def of_archive(self, chain: "Chain", verdict: "Verdict", session: dict[str, Any]) -> "Verdict":
        """The verdict on an archived chain, which must contain all its anchored events."""
        from paddock.audit.anchors import judged

        if self.anchors is None:
            return verdict
        chains = self.anchors.of_incarnation(str(session["id"]), session["incarnation"])
        return judged(verdict, chain.seen, chains | self.anchors.of_chain(str(session["key"])))


def verify_file(file: Path, noted: Noted, incarnation: int | None) -> dict[str, Any]:
    """The verdict on an exported chain. Raises: OSError; Failure if it is empty."""
    told: tuple[str, int | None] = "", None
    chain = noted.chain()
    # Bytes that are not UTF-8 are reported as a changed event.
    with file.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for line in lines:
            told = told if told[0] else _session_of(line)
            chain.follow(line)
            if chain.broken:
                break
    session_id, number = told
    if None not in (incarnation, number) and incarnation != number:
        raise Failure(f"{file} is of the incarnation {number}")
    verdict = noted.of_session(chain, session_id, number if incarnation is None else incarnation)
    if verdict.ok and not verdict.seq:
        raise Failure(f"{file} has no events")
    return asdict(verdict)


async def verify_session(
    paddock: "Paddock", session_id: str, incarnation: int | None, noted: Noted
) -> dict[str, Any]:
    """The verdict on a chain in its current state.

    Without an incarnation, this is the latest chain of that id, and all anchored ones must exist.

    Raises: Failure; NotFoundError if it was never anchored either.
    """
    from paddock.client import NotFoundError

    anchors = noted.anchors
    numbers = set() if anchors is None else anchors.sessions().get(session_id, set())
    if incarnation is not None:
        numbers &= {incarnation}
    try:
        found = await _number(paddock, session_id, incarnation)
        if found is None:  # the chain has no events
            return asdict(await _anchored(paddock, session_id, numbers, noted) or _broken(_EMPTY))
        verdict = await _verify(paddock, session_id, found, noted, noted.chain())
    except NotFoundError as error:
        gone = await _anchored(paddock, session_id, numbers, noted)
        if gone is not None and "archive" not in error.fields:
            return asdict(gone)
        raise
    if verdict.ok:
        verdict = await _anchored(paddock, session_id, numbers - {found}, noted) or verdict
    return asdict(verdict)


async def verify_all(paddock: "Paddock", noted: Noted) -> dict[str, Any]:
    """Whether every anchored session exists and contains its anchored events.

    The verdict gives the first that does not, or else the number of sessions.
    """
    count = 0
    sessions = noted.anchors.sessions() if noted.anchors else {}
    for session_id, numbers in sessions.items():
        bad = await _anchored(paddock, session_id, numbers, noted)
        if bad is not None:
            return asdict(replace(bad, reason=f"{session_id}: {bad.reason}"))
        count += len(numbers)
    old = sum(not numbers for numbers in sessions.values())
    if old:
        noted.notes.append(
            f"{old} ids were anchored only by an earlier version, which did not record the "
            "incarnation: it is not known whether those sessions exist."
        )
    return {"ok": True, "sessions": count}


async def _anchored(
    paddock: "Paddock", session_id: str, numbers: set[int], noted: Noted
) -> "Verdict | None":
    """The verdict on the first incarnation that is gone or differs; None if all are intact."""
    from paddock.client import NotFoundError

    for number in sorted(numbers):
        try:
            chain = noted.chain(noted=False)
            verdict = await _verify(paddock, session_id, number, noted, chain)
        except NotFoundError as error:
            if "archive" not in error.fields:
                return _gone(number)
            file = error.fields["archive"]
            noted.notes.append(
                f"The incarnation {number} of {session_id} is archived: verify {file} with "
                "--archive."
            )
            continue
        if verdict == _gone(number):
            return verdict
        if not verdict.ok:
            return replace(verdict, reason=f"the incarnation {number}: {verdict.reason}")
    return None


async def _verify(
    paddock: "Paddock", session_id: str, number: int | None, noted: Noted, chain: "Chain"
) -> "Verdict":
    """The verdict on one chain as currently exported."""
    told = False
    async with aclosing(paddock.sessions.audit(session_id, incarnation=number).export()) as lines:
        async for line in lines:
            told = True
            chain.follow(line)
            said = _session_of(line)[1]
            if said not in (None, number):
                chain.refuse(f"is of the incarnation {said}")
            if chain.broken:
                break
    return noted.of_session(chain, session_id, number) if told else _gone(number)


async def _number(paddock: "Paddock", session_id: str, incarnation: int | None) -> int | None:
    """The incarnation to verify."""
    if incarnation is not None:
        return incarnation
    async with aclosing(paddock.sessions.audit(session_id).events()) as events:
        async for event in events:
            return event.incarnation
    return None


def verify_archive(file: Path, noted: Noted) -> dict[str, Any]:
    """The verdict on an archive: chain, evidence, approvals. Raises: Failure."""
    from paddock.audit.archive_file import ArchiveError, verify

    chain = noted.chain()
    try:
        verified = verify(file, chain)
    except ArchiveError as error:
        raise Failure(str(error)) from None
    return asdict(noted.of_archive(chain, verified.verdict, verified.manifest["session"]))


def show_verdict(verdict: dict[str, Any], as_json: bool) -> None:
    """Prints the verdict. Raises: typer.Exit if the chain is not intact."""
    if as_json:
        print_json(verdict)
    elif verdict["ok"] and "sessions" in verdict:
        print_line(("✓ whole", f"bold {STYLES['ok']}"), (f"  {verdict['sessions']} sessions", ""))
    elif verdict["ok"]:
        print_line(("✓ whole", f"bold {STYLES['ok']}"), (f"  {verdict['seq']} events", ""))
        print_fields((("seq", verdict["seq"]), ("hash", verdict["hash"])))
    else:
        print_line(("✗ broken", f"bold {STYLES['failure']}"), (f"  {verdict['reason']}", ""))
        print_fields(
            (
                ("first bad event", verdict["index"]),
                ("last good seq", verdict["seq"]),
                ("hash", verdict["hash"]),
            )
        )
    if not verdict["ok"]:
        raise typer.Exit(Status.FAILED)


def _gone(number: int | None) -> "Verdict":
    return _broken(f"the incarnation {number} is gone")


def _broken(reason: str) -> "Verdict":
    from paddock.audit.chain import GENESIS_HASH, Verdict

    return Verdict(False, 0, reason, 0, GENESIS_HASH)


def _anchors(path: Path, public_key: str | None) -> "Anchors":
    from paddock.audit import anchors

    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return anchors.read(lines, public_key)
    except (anchors.AnchorError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}") from None


def _session_of(line: str) -> tuple[str, int | None]:
    """The id and incarnation of an event's session; empty and None if unknown."""
    import json

    try:
        event = json.loads(line)
        return str(event["session_id"]), event.get("incarnation")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", None
