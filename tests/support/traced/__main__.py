"""Dials the socket it is given, and runs one command for each line of JSON that it reads there."""

import json
import os
import shutil
import socket
import sys
from typing import Any

sys.path.insert(0, "/opt/paddock")

from sandbox_agent.decide import commands
from sandbox_agent.enforce import command_process
from sandbox_agent.enforce.programs import PATH
from sandbox_agent.enforce.syscalls import open_beneath
from tests.support.traced import playground, web
from tests.support.traced.tracer import Trace, trace

_ENV = {
    "PATH": PATH,
    "HOME": "/nonexistent",
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
}


def _run(request: dict[str, Any]) -> Trace | str:
    """The command, held to what the agent and its guard check; a text says why it did not run."""
    argv: list[str] = request["argv"]
    relative = request["cwd"].removeprefix("/workspace").strip("/") or "."
    workspace = os.open("/workspace", os.O_PATH | os.O_DIRECTORY)
    directory = workspace
    try:
        directory = open_beneath(workspace, relative, os.O_PATH | os.O_DIRECTORY)
        if request["checked"]:
            allowed = frozenset(request["commands"])
            inside = commands.paths_to_resolve(argv, allowed, cwd=f"/workspace/{relative}")
            escaping = command_process._first_escaping(workspace, inside)
            if escaping is not None:
                return f"{escaping} leads out"
            argv = commands.prepare(argv, allowed)
        return trace(_program(argv[0]), argv, _ENV, directory, request["seconds"])
    except (OSError, ValueError) as error:
        return str(error)
    finally:
        for descriptor in {workspace, directory}:
            os.close(descriptor)


def _program(name: str) -> str:
    found = shutil.which(name, path=PATH)
    assert found is not None, name
    return found


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    playground.lay_out_workspace()
    before = playground.seen_outside()
    result = _run(request)
    if isinstance(result, str):
        return {"refused": result}
    after = playground.seen_outside()
    return {
        "refused": None,
        "touched": result.touched,
        "exit_code": result.exit_code,
        "output": result.output.decode(errors="replace"),
        "program": os.path.realpath(_program(request["argv"][0])),
        "changed": sorted(
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        ),
    }


def main() -> None:
    """Serves until the other end hangs up."""
    playground.lay_out_canaries()
    web.serve_beside()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(sys.argv[1])
        with link.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                link.sendall(json.dumps(_answer(json.loads(line))).encode() + b"\n")


main()
