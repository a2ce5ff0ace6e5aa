"""What well-known commands need besides files: system calls that are denied, and the network.

By their words alone, for explanations: nothing is decided by it, and what is not here may need
the same. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

PTRACE = "ptrace"
# By command: a system call that it can't do without.
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
# With any operand these connect to it.
_CONNECT = frozenset(
    {
        *("curl", "dig", "ftp", "host", "nc", "ncat", "netcat", "nslookup", "ping", "ping6"),
        *("rsync", "scp", "sftp", "socat", "ssh", "telnet", "traceroute", "wget"),
    }
)
# A URL among their words is one to these only in name.
_OFFLINE = frozenset(
    {
        *("awk", "cat", "cp", "date", "echo", "env", "find", "grep", "head", "ls", "mkdir"),
        *("mv", "neofetch", "printf", "pwd", "rg", "rm", "sed", "stat", "tail", "tee"),
        *("touch", "uname", "wc", "which", "whoami"),
    }
)
# Of these files are operands, too: a host is followed by a colon.
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
    """The words without what only starts the command: its directory, and Python's `-m`."""
    name = words[0].rpartition("/")[2]
    if re.fullmatch(r"python[0-9.]*", name) and words[1:2] == ["-m"] and len(words) > 2:
        return list(words[2:])
    return [name, *words[1:]]


def system_call(words: Sequence[str]) -> str | None:
    """The denied system call that a command is known to need."""
    return CALLS.get(real_words(words)[0])


def hosts(words: Sequence[str]) -> list[str] | None:
    """The hosts that a command would connect to, where it says so; None: it needs no network."""
    name, *arguments = real_words(words)
    operands = [word for word in arguments if not word.startswith("-")]
    if name in _SUBCOMMANDS and (not operands or operands[0] not in _SUBCOMMANDS[name]):
        return None
    found = [] if name in _OFFLINE else list(_hosts(name, operands))
    if found:
        return found
    if name in _SUBCOMMANDS:
        # What is cloned without naming a host is a repository here.
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
    except ValueError:  # brackets that hold no address
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
    """Whether an open network does not reach it: it is link-local, or a name of the host's own."""
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return host in _HOSTS_OWN
