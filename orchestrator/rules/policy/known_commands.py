"""What well-known commands need besides files: denied system calls, and the network.

It considers a command's words only and serves explanations. It decides nothing, and commands that
are missing here may have the same needs. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

PTRACE = "ptrace"
# The system call that each command needs.
CALLS = {
    "bpftool": "bpf",
    "bpftrace": "bpf",
    "bwrap": "unshare",
    "chroot": "chroot",
    "fusermount": "mount",
    "gcore": PTRACE,
    "gdb": PTRACE,
    "keyctl": "keyctl",
    "lldb": PTRACE,
    "ltrace": PTRACE,
    "mount": "mount",
    "nsenter": "setns",
    "perf": "perf_event_open",
    "pivot_root": "pivot_root",
    "strace": PTRACE,
    "switch_root": "chroot",
    "umount": "umount2",
    "unshare": "unshare",
}
# Each operand of these is a host to which they connect.
_CONNECT = frozenset(
    {
        *("curl", "dig", "ftp", "host", "nc", "ncat", "netcat", "nslookup", "ping", "ping6"),
        *("rsync", "scp", "sftp", "socat", "ssh", "telnet", "traceroute", "wget"),
    }
)
# These only treat a URL among their words as a text.
_OFFLINE = frozenset(
    {
        *("awk", "cat", "cp", "date", "echo", "env", "find", "grep", "head", "ls", "mkdir"),
        *("mv", "neofetch", "printf", "pwd", "rg", "rm", "sed", "stat", "tail", "tee"),
        *("touch", "uname", "wc", "which", "whoami"),
    }
)
# The operands of these may also be files; a colon follows a host.
_COPY = frozenset({"rsync", "scp", "sftp"})
_FETCH = frozenset({"add", "ci", "i", "install", "publish", "update", "upgrade"})
_SUBCOMMANDS = {
    "apt": _FETCH,
    "apt-get": _FETCH | {"download", "source"},
    "cargo": _FETCH | {"fetch", "search"},
    "git": frozenset({"clone", "fetch", "ls-remote", "pull", "push", "submodule"}),
    "go": frozenset({"get", "install", "mod"}),
    "npm": _FETCH | {"audit", "outdated", "view"},
    "pip": frozenset({"download", "index", "install"}),
    "pip3": frozenset({"download", "index", "install"}),
    "pnpm": _FETCH,
    "yarn": _FETCH,
}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_REMOTE = re.compile(r"(?:[^@/:\s]+@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!//)", re.ASCII)
_HOSTS_OWN = frozenset({"host.docker.internal", "instance-data", "metadata.google.internal"})


def real_words(words: Sequence[str]) -> list[str]:
    """The command without a prefix that only starts it: its directory, or Python's `-m`."""
    name = words[0].rpartition("/")[2]
    if re.fullmatch(r"python[0-9.]*", name) and words[1:2] == ["-m"] and len(words) > 2:
        return list(words[2:])
    return [name, *words[1:]]


def system_call(words: Sequence[str]) -> str | None:
    """The denied system call that a command is known to need."""
    return CALLS.get(real_words(words)[0])


def hosts(words: Sequence[str]) -> list[str] | None:
    """The hosts to which a command would connect, if it names them; None if it needs no network."""
    name, *arguments = real_words(words)
    operands = [word for word in arguments if not word.startswith("-")]
    if name in _SUBCOMMANDS and (not operands or operands[0] not in _SUBCOMMANDS[name]):
        return None
    found = [] if name in _OFFLINE else list(_hosts(name, operands))
    if found:
        return found
    if name in _SUBCOMMANDS:
        # A clone without a host copies a local repository.
        return None if name == "git" and operands[0] == "clone" else []
    return [] if name in _CONNECT - _COPY and operands else None


def _hosts(name: str, operands: list[str]) -> Iterator[str]:
    for word in operands:
        host = None
        if _URL.match(word):
            host = None if word.lower().startswith("file:") else _host(word)
        elif name in _COPY | {"git"}:
            remote = _REMOTE.match(word)
            host = remote[1] if remote else None
        elif name in _CONNECT:
            host = _host(f"//{word}")
        if host:
            yield host.lower().rstrip(".")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # brackets without an address
        return None


def is_loopback(host: str) -> bool:
    """Whether it is the sandbox itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_dropped(host: str) -> bool:
    """Whether an open network can't reach it: it is a link-local address, or names the host."""
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return host in _HOSTS_OWN
