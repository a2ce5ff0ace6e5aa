"""The environment of a terminal's program: the same every time, and nothing of the workspace's."""

from sandbox_agent.programs import PATH

# No pager waits for a key, no colour is switched on, no history is kept; and no start-up file
# of the workspace can redefine what the program makes of its input.
_BASE = {
    "PATH": PATH,
    "HOME": "/nonexistent",
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "INPUTRC": "/dev/null",
    "EDITRC": "/dev/null",
    "HISTFILE": "/dev/null",
    "LESSHISTFILE": "-",
    "PSQLRC": "/dev/null",
    "PSQL_HISTORY": "/dev/null",
    "MYSQL_HISTFILE": "/dev/null",
    "REDISCLI_HISTFILE": "/dev/null",
    "NODE_REPL_HISTORY": "",
    "PYTHON_HISTORY": "/dev/null",
    "GDBHISTFILE": "/dev/null",
}


def environment(own: dict[str, str]) -> dict[str, str]:
    """The base with a tool's own variables, which come first."""
    return {**_BASE, **own}
