"""The process that follows long chains, so that neither the event loop nor a reader waits for it.

It answers one request after the other, each a line of JSON: to follow a chain for a while, or to
forget one. `verifier.py` starts it, and it ends with the control plane.
"""

import ctypes
import json
import os
import signal
import sqlite3
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.ground.store.database_file import connect
from orchestrator.record.audit.verification import FollowedChain
from paddock.audit.chain import Anchor

# Pages that one request follows: about a tenth of a second.
PAGES = 10
_PR_SET_PDEATHSIG = 1
_LESS_URGENT = 10


def main(arguments: list[str]) -> int:
    """`PATH PARENT`: the database's file, and the process with which this one ends."""
    path, parent = Path(arguments[0]), int(arguments[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 1  # it died before this process had asked to end with it
    os.nice(_LESS_URGENT)
    chains: dict[int, FollowedChain] = {}
    connection: sqlite3.Connection | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if connection is None:
                connection = connect(path, read_only=True)
            answer = perform(connection, chains, request)
        except (sqlite3.Error, OSError) as error:
            chains.pop(request["chain"], None)
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


def perform(
    connection: sqlite3.Connection, chains: dict[int, FollowedChain], request: dict[str, Any]
) -> dict[str, Any]:
    """Follows the chain with that number for a while; the answer has the verdict at its end.

    A request without a session forgets the chain. Raises: sqlite3.Error.
    """
    number = request["chain"]
    if "session_key" not in request:
        chains.pop(number, None)
        return {}
    chain = chains.get(number)
    if chain is None:
        anchor = None if request["anchor"] is None else Anchor(*request["anchor"])
        chain = chains[number] = FollowedChain(request["session_key"], request["end"], anchor)
    for _ in range(PAGES):
        if not chain.follow(connection):
            del chains[number]
            return {"verdict": asdict(chain.verdict())}
    return {}
