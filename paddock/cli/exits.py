"""How a command ends: exit statuses, and failures as one line with a remedy."""

from enum import IntEnum

# A variable that makes an unexpected failure show its traceback.
TRACEBACK_VARIABLE = "PADDOCK_TRACEBACK"
SIGNALLED = 128  # plus the signal's number, as in shells


class Status(IntEnum):
    """The exit statuses of all commands; `run` and `exec` also return their command's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    NOT_FOUND = 5
    TRY_LATER = 6
    NOT_INSTALLED = 7


MEANINGS = {
    Status.OK: "done",
    Status.FAILED: "failed, or a check found something wrong",
    Status.USAGE: "wrong usage or configuration; nothing was done",
    Status.UNREACHABLE: "no control plane answers at the URL",
    Status.REFUSED: "refused by a policy, or the key does not permit it",
    Status.NOT_FOUND: "there is no such session, file or command, or it is over",
    Status.TRY_LATER: "no room, too busy or too many requests: try again later",
    Status.NOT_INSTALLED: "the command needs the server, which is not installed here",
}


class Failure(Exception):  # noqa: N818 - an outcome, not an error
    """Ends the command, with the problem, the remedy and the exit status."""

    def __init__(
        self, what: str, remedy: str | None = None, status: Status = Status.FAILED
    ) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.status = status
