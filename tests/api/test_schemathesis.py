"""Schemathesis with the whole API: its answers match the document."""

import asyncio
import sys
from pathlib import Path

import pytest

from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, Api

pytestmark = pytest.mark.slow

SEED = 20260304
EXAMPLES = 6
SECONDS = 800  # on a quiet machine it takes a twentieth of that

# Operations that end or change a session get a session of their own.
OWN_SESSIONS = {
    "close_session": "closing",
    "pause_session": "pausing",
    "resume_session": "pausing",
    "complete_session": "completing",
    "abort_session": "aborting",
    "rotate_handle": "rotating",
    "change_settings": "changing",
    "follow_session": "ended",
    "close_port": "portless",
    # It has no turns: an id that is replaced by this one does not count as valid.
    "read_turn": "turnless",
}

CONFIG = """
[generation]
allow-x00 = false  # refused everywhere, as the document says in words

[parameters]
"path.session_id" = "box"
"path.command_id" = "{command_id}"

# Without an end.
[[operations]]
include-operation-id = "follow_all"
enabled = false
[[operations]]
include-operation-id = "watch_files"
enabled = false

# A session may have this id, so the path takes what the paths of sessions take.
[[operations]]
include-operation-id = "restore_session"
checks.allow_header_conformance.enabled = false

# A header Range in another form is ignored, as HTTP has it.
[[operations]]
include-operation-id = "read_file"
checks.negative_data_rejection.enabled = false
[[operations]]
include-operation-id = "read_output"
checks.negative_data_rejection.enabled = false

# A text over its limit is refused by its member, or by the size of the body.
[checks.negative_data_rejection]
expected-statuses = [
  "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"
]

# Words that are no command, values over what the session's level allows, budgets that are used up.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "403", "404", "409", "410", "429", "503"]
"""

OPERATION = """
[[operations]]
include-operation-id = "{operation}"
parameters = {{ "path.session_id" = "{session}" }}
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Schemathesis may create any number of sessions and send any number of requests."""
    return settings.model_copy(update={"max_active": 10_000, "key_requests_per_second": 10_000})


async def test_the_api_is_as_documented(api: Api, tmp_path: Path) -> None:
    for session in {"box", *OWN_SESSIONS.values()}:
        await api.session(id=session, permission_level="high")
    await api.json("DELETE", "/api/sessions/ended")
    body = {"argv": ["make"], "background": True}
    started = await api.json("POST", "/api/sessions/box/exec", json=body, status=202)
    api.agents.files["draft.txt"] = b"x"
    config = tmp_path / "schemathesis.toml"
    config.write_text(
        CONFIG.format(command_id=started["command_id"])
        + "".join(
            OPERATION.format(operation=operation, session=session)
            for operation, session in OWN_SESSIONS.items()
        )
    )
    status, output = await run(
        *("--config-file", str(config)),
        *("run", str(api.server.make_url("/api/openapi.json"))),
        *("--header", f"Authorization: Bearer {ADMIN_KEY}"),
        *("--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(EXAMPLES)),
        *("--seed", str(SEED)),
        *("--request-timeout", "10"),
        *("--no-shrink", "--continue-on-failure"),
    )
    assert status == 0, output


async def run(*arguments: str) -> tuple[int | None, str]:
    """Schemathesis' exit status and output."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return process.returncode, output.decode(errors="replace")
