"""An app: a model works in a sandbox, another one reviews the work, and the session can go on."""

import asyncio
import os
from pathlib import Path

from paddock import Paddock
from paddock.app import Agent, App, AppEvent, AppHooks, FileStore, ToolContext
from paddock.app.openai_chat import OpenAIChat

URL, KEY = os.environ["PADDOCK_URL"], os.environ["PADDOCK_KEY"]
MODEL = OpenAIChat(os.environ["MODEL_URL"], os.environ["MODEL"], key=os.environ.get("MODEL_KEY"))
REVIEWER = Agent(system="You review what others did. Answer in one sentence.")


def ticket(number: int) -> str:
    """The text of a ticket of the tracker."""
    return {7: "notes.txt must say hello."}.get(number, "There is no such ticket.")


async def review(task: str, context: ToolContext) -> str:
    """Has another agent look at what was done."""
    return (await context.spawn(REVIEWER, task, workspace="shared")).text


def show(session: str, event: AppEvent) -> None:
    """Prints what the model says and calls."""
    if event.kind in ("text", "tool_call"):
        print(f"{session}:", event.data.get("text") or event.data["name"])


async def main() -> None:
    """Has a model do a ticket; the session is the same one the next time."""
    store, hooks = FileStore(Path("app-sessions")), AppHooks(on_event=show)
    async with (
        Paddock(URL, KEY) as paddock,
        App(paddock, model=MODEL, tools=[ticket, review], store=store, hooks=hooks) as app,
    ):
        session = await app.session("user-123")
        print((await session.send("Do ticket 7, and have it reviewed.")).status)


if __name__ == "__main__":
    asyncio.run(main())
