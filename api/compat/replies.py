"""What the answers of all protocols share: JSON, and the text of a refusal."""

import json
import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from api.compat.long_texts import value_text
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.serving.problems import document
from orchestrator.ground.threads import Aside
from paddock.contract.remedies import REMEDIES


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> web.Response:
    """A response with the value as JSON."""
    return web.Response(
        status=status, text=json.dumps(value), content_type="application/json", headers=headers
    )


async def long_reply(value: Any, size: int, aside: Aside) -> web.Response:
    """As `json_reply`, for an object or list of about so many bytes."""
    text = await aside.call(size, lambda: value_text(value))
    return web.Response(text=text, content_type="application/json")


def explained(error: PaddockError, request_id: str) -> dict[str, Any]:
    """The problem document of an error, with the `remedy` of its rule."""
    problem = document(error, request_id)
    remedy = problem.get("remedy") or REMEDIES.get(problem.get("rule") or "")
    return problem if remedy is None else problem | {"remedy": remedy}


def sentence(problem: Mapping[str, Any]) -> str:
    """A problem for a person: what was refused, by which rule, and what to do instead."""
    rule, remedy = problem.get("rule"), problem.get("remedy")
    text = str(problem["detail"])
    if rule is not None:
        text += f" (rule {rule})"
    return text if remedy is None else f"{text}. {remedy}"


def moment(time: object) -> str | None:
    """A time of a model, which the server holds as text; None if there is none."""
    return str(time) if time else None


def retry_headers(error: PaddockError) -> dict[str, str]:
    """When the request may be repeated, if the error says so."""
    if "retry_after" not in error.fields:
        return {}
    return {"Retry-After": str(math.ceil(error.fields["retry_after"]))}
