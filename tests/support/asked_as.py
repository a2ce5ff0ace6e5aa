"""Under which names of a foreign protocol the events of a session are on record."""

from tests.api.conftest import Api

_OWN = ("system", "agent")


async def asked_as(api: Api, session_id: str, actor: str) -> set[tuple[str, str | None]]:
    """Each operation that `actor` has on record in the session, with the name it was asked by."""
    page = await api.json("GET", f"/api/sessions/{session_id}/audit?limit=1000")
    return {
        (event["operation"], event["args"].get("asked_as"))
        for event in page["items"]
        if event["actor"] == actor and event["actor"] not in _OWN
    }
