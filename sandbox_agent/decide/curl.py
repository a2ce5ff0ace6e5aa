"""The checks specific to curl: its URLs, and the options whose values name files."""

import re

from sandbox_agent.decide.options import Parsed

# A host without scheme, user or glob, which curl fetches over HTTP by default.
_BARE_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?([/?#].*)?", re.DOTALL)
# curl guesses a different protocol if a bare host begins with one of these labels.
_GUESSED = ("ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3.")
# The options whose value is a file or directory that curl writes.
_WRITES = (
    "o",
    "output",
    "output-dir",
    "D",
    "dump-header",
    "c",
    "cookie-jar",
    "alt-svc",
    "etag-save",
    "hsts",
    "libcurl",
    "stderr",
    "trace",
    "trace-ascii",
)


def refusal(parsed: Parsed) -> tuple[str, str, str] | None:
    """The rule, the reason and the refused word if a URL or a value is not allowed."""
    for url in [*parsed.operands, *parsed.values("url")]:
        if not _is_web(url):
            return "url-not-allowed", "curl URL must begin with http:// or https://", url
    for value in parsed.values("H", "header", "w", "write-out"):
        if value.startswith("@") or "%output{" in value:
            return "option-not-allowed", "curl may not read or write a file here", value
    return None


def _is_web(url: str) -> bool:
    lowered = url.lower()
    if lowered.startswith(("http://", "https://")):
        return True
    return _BARE_HOST.fullmatch(url) is not None and not lowered.startswith(_GUESSED)


def written(parsed: Parsed) -> list[str]:
    """The paths that curl writes; `-` is standard output, and the null device keeps nothing."""
    return [path for path in parsed.values(*_WRITES) if path not in {"", "-", "/dev/null"}]
