"""The environment of a terminal's program, which does not depend on the workspace."""

from sandbox_agent.enforce.programs import PATH

# These disable pagers, colours and history, and the workspace's start-up files, which could
# otherwise change how the program interprets its input.
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
    """The base environment with a program's own variables, which take precedence."""
    return {**_BASE, **own}
