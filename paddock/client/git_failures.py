"""Why git failed, and what to do. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from paddock.contract.commands import CommandResult
from paddock.contract.egress import EgressDraft

# Texts of git's and of libcurl's, in the language of a command without a locale.
_HOST = re.compile(r"unable to access 'https?://([^/'\s:]{1,255})(?::(\d{1,5}))?[/']")
# The proxy's refusal of a tunnel, in two versions of libcurl, and of an inspected request.
_DENIED = re.compile(
    r"CONNECT tunnel failed, response 403|code 403 from proxy|remote: Paddock denied this request"
)
_UNAUTHORIZED = re.compile(
    r"could not read (?:Username|Password)|Authentication failed|returned error: 403"
)
_NO_NETWORK = re.compile(r"Could not resolve host")
_UNTRUSTED = re.compile(r"certificate problem|certificate verif")
_MOST_LETTERS = 400
_NO_REPOSITORY = "give `path`, the directory of a clone"


class Failed(NamedTuple):
    """A failure as one line, and what to do about it."""

    what: str
    remedy: str | None = None


def explained(
    operation: str, result: CommandResult, drafts: Iterable[EgressDraft] = (), session: str = ""
) -> Failed:
    """The failure of a command of git's; `drafts` are the requests that the way out denied."""
    if result.error is not None:
        if result.error.startswith("cannot run git"):
            return Failed(
                "the session's image has no git",
                "create the session with the image `sandbox`, or another that has git",
            )
        entered = result.error.startswith("cannot enter directory")
        return Failed(result.error, _NO_REPOSITORY if entered else None)
    if result.timed_out:
        return Failed(f"git {operation} did not end in time", "give it a longer timeout")
    said = f"{result.stdout}\n{result.stderr}"
    draft = _draft(said, drafts)
    if draft is not None:
        return Failed(
            f"the way out denies {draft.host}:{draft.port} by rule {draft.rule}",
            f"an admin allows it: `paddock egress allow {session} --draft {draft.number}`",
        )
    return Failed(f"git {operation} failed: {_line(result)}", _remedy(said))


def denied_host(result: CommandResult) -> tuple[str, int | None] | None:
    """The host and port that git could not reach because the proxy refused."""
    found = _HOST.search(result.stderr)
    if found is None or _DENIED.search(result.stderr) is None:
        return None
    return found[1], int(found[2]) if found[2] else None


def _draft(said: str, drafts: Iterable[EgressDraft]) -> EgressDraft | None:
    found = _HOST.search(said)
    if found is None:
        return None
    mine = [
        each
        for each in drafts
        if each.host == found[1] and (found[2] is None or each.port == int(found[2]))
    ]
    return max(mine, key=lambda each: str(each.last_seen), default=None)


def _remedy(said: str) -> str | None:
    if _UNAUTHORIZED.search(said):
        return (
            "give `secret`, the name of a secret for this host (`paddock secrets set NAME --host "
            "HOST`), and let a rule with `inspect` allow the host: the secret is put in only there"
        )
    if _NO_NETWORK.search(said):
        return "use a session at a level with a way out, whose rules allow the host"
    if _UNTRUSTED.search(said):
        return "a level's own rules must inspect the host, and PADDOCK_CA_FILE have its root"
    if "tell me who you are" in said:
        return "give `author` as `Name <address>`"
    if "not a git repository" in said:
        return _NO_REPOSITORY
    if "[rejected]" in said or "fetch first" in said:
        return "the branch has commits that are not here: fetch and merge them first"
    return None


def _line(result: CommandResult) -> str:
    """The last line that says what is wrong; some commands print it to standard output."""
    printed = result.stderr if result.stderr.strip() else result.stdout
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("fatal:", "error:"))]
    last = (wrong or lines or [f"it ended with {result.exit_code}"])[-1]
    return last.removeprefix("fatal: ").removeprefix("error: ")[:_MOST_LETTERS]
