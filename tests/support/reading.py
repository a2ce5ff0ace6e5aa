"""Commands of a session that may read its manifest's files only, in a container without a host."""

import json
from pathlib import Path
from typing import Any

from docker import APIClient

from tests.support import reading_program
from tests.support.agent_code import AGENT_CODE
from tests.support.limits import PROGRAM_SECONDS
from tests.support.reading_program import UID


def run(client: APIClient, image: str, given: dict[str, Any]) -> dict[str, Any]:
    """Runs what is given, and returns what came of it: see `reading_program`."""
    source = Path(reading_program.__file__).read_text()
    words = ["timeout", "-s", "KILL", "60", "python3", "-I", "-c", source, json.dumps(given)]
    container = client.create_container(
        image,
        entrypoint=words,
        host_config=client.create_host_config(
            cap_drop=["ALL"],
            cap_add=["SETUID", "SETGID"],
            network_mode="none",
            security_opt=["no-new-privileges"],
            read_only=True,
            binds=[AGENT_CODE],
            tmpfs={
                "/workspace": f"exec,uid={UID},gid={UID},mode=0755",
                "/tmp": "exec,mode=1777",
            },
        ),
    )
    try:
        client.start(container)
        assert client.wait(container, timeout=PROGRAM_SECONDS)["StatusCode"] == 0, client.logs(
            container
        )
        found: dict[str, Any] = json.loads(client.logs(container, stderr=False))
        return found
    finally:
        client.remove_container(container, v=True, force=True)
