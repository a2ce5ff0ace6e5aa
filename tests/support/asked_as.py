"""Under which names of a foreign protocol the events of a session are on record."""

from tests.api.conftest import Api


async def asked_as(api: Api, session_id: str, actor: str) -> set[tuple[str, str | None]]:
    """Each operation that `actor` did or asked the agent for, with the name it was asked by."""
    page = await api.json("GET", f"/api/sessions/{session_id}/audit?limit=1000")
    return {
        (event["operation"], event["args"].get("asked_as"))
        for event in page["items"]
        if actor in (event["actor"], event["args"].get("asked_by"))
    }
