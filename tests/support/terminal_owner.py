"""A control plane with a session and a terminal in the middle of a line, until it is killed.

`python -m tests.support.terminal_owner STATE_DIR IMAGE UID_BASE` prints `{session, terminal}` when
it is ready.
"""

import asyncio
import json
import sys
from pathlib import Path

from orchestrator.control_plane import ControlPlane
from orchestrator.settings.settings import Settings
from tests.support.box import Box
from tests.support.tool import Tool
from tests.support.until import until


async def main(state_dir: str, image: str, uid_base: str) -> None:
    plane = await ControlPlane.open(
        Settings(
            state_dir=Path(state_dir),
            image=image,
            uid_base=int(uid_base),
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
        )
    )
    box = await Box.create(plane, "high")
    tool = await Tool.open(box, output_wait_ms=600_000)
    await tool.do("say hello")
    hanging = asyncio.create_task(tool.do("hang"))
    await until(lambda: plane.terminals.live(box.session)[0].interactions == 2)
    print(json.dumps({"session": box.session.id, "terminal": tool.id}), flush=True)
    await hanging


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
