"""What the cluster keeps of a session for `recovery: snapshot`, besides its archive. Pure.

No secret is in it: the cluster's database has it as it is.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic import ValidationError as SchemaError

from orchestrator.cluster.copies import PIECE_BYTES, LostSession, WorkspaceCopy
from orchestrator.ground.errors import ValidationError
from orchestrator.operate.snapshots.archive import END, PartFacts, head, header, padding
from orchestrator.state.moving.continued import Continued, EarlierLife
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.audit.chain import GENESIS_HASH

_ADAPTER = TypeAdapter(Continued)
_CONTINUED, _PLACE = "continued", "place"


def archive_bytes(manifest: bytes, parts: list[PartFacts]) -> int:
    """How long the archive is."""
    framed = (len(header(name, size)) + size + len(padding(size)) for name, size, _ in parts)
    return len(head(manifest)) + sum(framed) + len(END)


async def pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of that size; the last one may be shorter."""
    waiting = bytearray()
    async for chunk in chunks:
        waiting += chunk
        while len(waiting) >= PIECE_BYTES:
            yield bytes(waiting[:PIECE_BYTES])
            del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)


def copy_of(session: Session, size: int, sha256: str) -> WorkspaceCopy:
    """The copy of a session whose archive has that size and digest."""
    earlier = EarlierLife("", session.key, session.incarnation, 0, GENESIS_HASH)
    known = Continued.of(session, earlier, [])
    # Values that only its sandbox or the proxy has are lost with its node.
    known = replace(known, secrets=None, secret_names=(), seal_key="")
    members = {_CONTINUED: json.loads(_ADAPTER.dump_json(known)), _PLACE: session.place}
    return WorkspaceCopy(
        session.id,
        session.key,
        session.owner,
        size,
        sha256,
        session.handle_sha256,
        json.dumps(members),
    )


def continued_of(lost: LostSession) -> Continued:
    """What the session goes on with on this node. Raises: ValidationError."""
    try:
        members = json.loads(lost.copy.continued)
        known = _ADAPTER.validate_python(members[_CONTINUED])
        moved = lost.place - int(members[_PLACE])
    except (SchemaError, ValueError, KeyError, TypeError) as error:
        raise ValidationError(f"the copy is none: {type(error).__name__}", field="copy") from None
    incarnation = known.earlier.incarnation + moved
    earlier = EarlierLife(lost.node, lost.copy.session_key, incarnation, lost.event, lost.hash)
    return replace(known, earlier=earlier, handle_sha256=lost.copy.handle_sha256)


def request_of(session: Mapping[str, Any]) -> NewSession:
    """The request in the manifest of a copy, which a node of this cluster has written.

    The rules of its way out are among what it goes on with. Raises: ValidationError.
    """
    try:
        return NewSession(
            id=session["id"],
            permission_level=session["permission_level"],
            terms=Terms.restored({n: session[n] for n in session.keys() & Terms.names()}),
            budget=session["budget"],
            policy=session["policy"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValidationError(f"the copy is none: {type(error).__name__}", field="copy") from None
