"""An app: a model behind an endpoint works in sandboxes, and comes back to them."""

import asyncio
import os
from pathlib import Path

from paddock import Paddock
from paddock.app import App, AppEvent, AppHooks, FileStore
from paddock.app.openai_chat import OpenAIChat

URL, KEY = os.environ["PADDOCK_URL"], os.environ["PADDOCK_KEY"]
MODEL = OpenAIChat(os.environ["MODEL_URL"], os.environ["MODEL"], key=os.environ.get("MODEL_KEY"))


def ticket(number: int) -> str:
    """The text of a ticket of the tracker."""
    return {7: "notes.txt must say hello."}.get(number, "There is no such ticket.")


def show(session: str, event: AppEvent) -> None:
    """Prints what a model says and calls."""
    if event.kind in ("text", "tool_call"):
        print(session, event.data)


async def main() -> None:
    """Has a model do a ticket; the session is the same one the next time."""
    store, hooks = FileStore(Path("app-sessions")), AppHooks(on_event=show)
    async with (
        Paddock(URL, KEY) as paddock,
        App(paddock, model=MODEL, tools=[ticket], store=store, hooks=hooks) as app,
    ):
        session = await app.session("user-123")
        print((await session.send("Do ticket 7.")).status)


if __name__ == "__main__":
    asyncio.run(main())
