"""Long texts are searched for secrets in a thread, even if their session ends meanwhile."""

from types import SimpleNamespace
from typing import cast

from orchestrator.record.audit.secret_cutting import MOST_AT_ONCE, SecretCutting
from orchestrator.state.session import Session
from sandbox_agent.decide.redaction import MARK, Redactor

SECRET = "tok_2b1f9c07d4e8"


async def test_what_was_said_last_is_cut_also_when_the_session_has_ended() -> None:
    ended = SimpleNamespace(key="k1", secrets=SimpleNamespace(redactor=Redactor([SECRET])))
    text = "x" * MOST_AT_ONCE
    assert await SecretCutting().value(cast(Session, ended), text + SECRET) == text + MARK
