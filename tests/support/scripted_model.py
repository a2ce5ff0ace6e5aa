"""A model's endpoint that answers from a script, as OpenAI's chat completions do."""

import json
from typing import Any

from aiohttp import web


class ScriptedModel:
    """Its n-th answer is a call of the tool `bash` with the n-th command; the last one repeats."""

    def __init__(self, *commands: str) -> None:
        self._commands = commands
        self.authorizations: list[str | None] = []
        self.bodies: list[dict[str, Any]] = []
        self.app = web.Application()
        self.app.router.add_post("/v1/chat/completions", self._complete)

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        turn = min(len(self.bodies), len(self._commands) - 1)
        self.authorizations.append(request.headers.get("Authorization"))
        self.bodies.append(body)
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {
                "name": "bash",
                "arguments": json.dumps({"command": self._commands[turn]}),
            },
        }
        message = {"role": "assistant", "content": "Next step.", "tool_calls": [call]}
        return web.json_response(
            {
                "id": f"chatcmpl-{turn}",
                "object": "chat.completion",
                "created": 1_800_000_000,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
            }
        )
