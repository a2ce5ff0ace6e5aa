"""Sends new approvals to a URL of the operator: signed, with retries, without blocking callers."""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.ground.http_post import FAILURES, post
from orchestrator.ground.signed_post import signed_headers
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.work.approvals.approval_rows import Approval

log = logging.getLogger(__name__)

# Above this number, the newest messages are dropped and logged. They can still be listed.
_MOST_WAITING = 256
_TRIES = 5
_FIRST_PAUSE = 1.0  # doubled after each try
_TRY_SECONDS = 10.0
# All attempts of a delivery, including the pauses.
_ROUND_SECONDS = 120.0


class Webhook:
    """Delivers messages one by one, from `start` to `close`, which drops waiting messages.

    Each is a POST of a JSON object with `Paddock-Delivery` (the same for every attempt),
    `Paddock-Timestamp` (seconds since 1970) and `Paddock-Signature`: `v1=` and the hex HMAC-SHA256,
    under the secret, of the timestamp, a full stop and the body.
    """

    def __init__(self, url: str, secret: str, first_pause: float = _FIRST_PAUSE) -> None:
        self._url = url
        self._secret = secret.encode()
        self._first_pause = first_pause
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins to deliver."""
        self._task = tasks.start(TaskName.WEBHOOK, self._deliver_all, rounds=self._rounds)

    def send(self, message: Mapping[str, Any]) -> None:
        """Enqueues a message and returns at once."""
        try:
            self._waiting.put_nowait(json.dumps(message, ensure_ascii=False).encode())
        except asyncio.QueueFull:
            log.error("the webhook is too slow: a message is dropped")

    async def close(self) -> None:
        """Stops delivering."""
        if self._task is not None:
            await self._task.close()

    async def _deliver_all(self) -> None:
        while True:
            body = await self._waiting.get()
            with self._rounds.round() as this:
                this.failed = not await self._deliver(body)

    async def _deliver(self, body: bytes) -> bool:
        """Whether it was delivered."""
        delivery, pause = secrets.token_hex(8), self._first_pause
        for number in range(1, _TRIES + 1):
            try:
                async with asyncio.timeout(_TRY_SECONDS):
                    status = await self._post(delivery, body)
            except FAILURES as error:
                problem = str(error) or type(error).__name__
            else:
                if 200 <= status < 300:
                    return True
                problem = f"status {status}"
            log.warning("webhook delivery %s, try %d of %d: %s", delivery, number, _TRIES, problem)
            if number < _TRIES:
                await asyncio.sleep(pause)
                pause *= 2
        return False

    async def _post(self, delivery: str, body: bytes) -> int:
        headers = {"Paddock-Delivery": delivery, **signed_headers(self._secret, body)}
        return await post(self._url, headers, body)


def requested(approval: Approval) -> dict[str, Any]:
    """The message of a new approval, which has the members that the API shows."""
    members = asdict(approval)
    del members["session_key"]
    members["command"] = members.pop("text")
    return {"type": "approval.requested", "approval": members}
