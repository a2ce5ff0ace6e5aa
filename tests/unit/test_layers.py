"""The layers below the parser that would stop a command, found from the command's words."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.policy.known_commands import hosts, is_dropped, is_loopback, system_call
from orchestrator.rules.policy.layers import command_stops, path_stops
from orchestrator.rules.policy.levels import Level, load_levels

LEVELS = load_levels(Path(__file__).parents[2] / "examples" / "levels")


def layers(level: Level, command: str, cwd: str = "/workspace") -> list[str]:
    stops = command_stops(level, command.split(), cwd)
    assert all(stop.message and stop.remedy.endswith(".") for stop in stops)
    return [stop.layer for stop in stops]


COMMANDS: list[tuple[str, str, list[str]]] = [
    # The program
    ("low", "ls -la", []),
    ("low", "/bin/ls", []),
    ("low", "/usr/bin/ls", []),
    ("low", "python3 x.py", ["landlock"]),
    ("low", "/usr/bin/python3 x.py", ["landlock"]),
    ("low", "/opt/ls", ["landlock"]),
    ("low", "./a.out", ["mount", "landlock"]),
    ("low", "/tmp/a.out", ["mount", "landlock"]),
    ("low", "../workspace/a.out", ["mount", "landlock"]),
    ("medium", "uname", []),
    ("high", "./a.out", []),
    ("high", "/opt/anything", []),
    ("build", "python3 x.py", []),
    ("build", "./a.out", ["landlock"]),
    ("build", "/usr/lib/git-core/git-remote-https", []),
    ("build", "make all", ["landlock"]),
    # Paths
    ("low", "cat notes.txt /tmp/x", []),
    ("low", "cat /etc/shadow", ["landlock"]),
    ("low", "cat /etc/passwd /etc/ssl/certs/ca-certificates.crt", []),
    ("low", "cat ../secret", ["landlock"]),
    ("low", "cat /workspace2/x", ["landlock"]),
    ("low", "grep -rn root /var", ["landlock"]),
    ("low", "head /bin/cat", []),
    ("low", "cp /etc/shadow x", ["landlock"]),
    ("low", "cp x /etc/cron.d/x", ["mount", "landlock"]),
    ("low", "cp -t /etc x", ["mount", "landlock"]),
    ("low", "cp x /tmp/y", []),
    ("low", "touch /proc/x", ["landlock"]),
    ("low", "touch /dev/shm/x", ["landlock"]),
    ("high", "touch /dev/shm/x", []),
    ("high", "cat /etc/shadow", []),
    ("high", "cp x /etc/cron.d/x", ["mount"]),
    ("high", "tee /etc/x", ["mount"]),
    ("high", "dd if=/dev/zero of=/etc/x", ["mount"]),
    ("high", "tee /dev/null", []),
    ("high", "python3 /usr/share/x.py", []),
    ("build", "python3 /opt/x.py", ["landlock"]),
    ("build", "python3 --config=/opt/x", ["landlock"]),
    ("build", "python3 /usr/lib/python3.11/this.py", []),
    ("medium", "echo /etc/shadow", []),
    ("low", "cp x", []),
    # System calls
    ("high", "mount -t tmpfs none /mnt", ["seccomp"]),
    ("high", "/usr/bin/strace ls", ["seccomp"]),
    ("high", "unshare -r sh", ["seccomp"]),
    ("high", "keyctl show", ["seccomp"]),
    ("low", "gdb", ["landlock", "seccomp"]),
    # The network
    ("low", "curl example.org", ["landlock", "network"]),
    ("medium", "curl example.org", ["network"]),
    ("medium", "curl --version", []),
    ("medium", "curl http://localhost:8000/", []),
    ("medium", "curl http://[::1]/", []),
    ("medium", "echo http://example.org", []),
    ("high", "curl https://example.org", []),
    ("high", "curl http://169.254.169.254/latest", ["network"]),
    ("high", "wget metadata.google.internal", ["network"]),
    ("high", "curl http://[fe80::1]/", ["network"]),
    ("high", "git clone https://example.org/x", []),
    ("build", "python3 -m pip install requests", []),
]


def test_commands() -> None:
    for level, command, expected in COMMANDS:
        assert layers(LEVELS[level], command) == expected, (level, command, expected)


def test_the_directory_counts() -> None:
    assert layers(LEVELS["low"], "cat ../x", "/workspace/src") == []
    assert layers(LEVELS["low"], "cat ../../x", "/workspace/src") == ["landlock"]


def test_what_a_level_file_allows() -> None:
    """With the member that a remedy names, nothing stops the command any more."""
    low = LEVELS["low"]
    confinement = low.confinement

    def confined(**members: object) -> Level:
        return replace(low, confinement=confinement._replace(**members))  # type: ignore[arg-type]

    commands = low.commands or frozenset()
    assert layers(replace(low, commands=commands | {"make"}), "make") == []
    assert layers(confined(execute=["/opt"]), "/opt/tool") == []
    assert layers(confined(read=["/opt/data"]), "cat /opt/data/x") == []
    assert layers(confined(read=["/opt/data"]), "cat /opt/database") == ["landlock"]
    assert layers(confined(paths=False), "make") == []
    assert layers(replace(low, noexec=False), "./a.out") == ["landlock"]
    both = replace(confined(execute=["/workspace"]), noexec=False)
    assert layers(both, "./a.out") == []
    traced = replace(confined(ptrace=True), commands=commands | {"gdb", "unshare"})
    assert layers(traced, "gdb x") == []
    assert layers(traced, "unshare x") == ["seccomp"]
    online = replace(low, network="open", commands=commands | {"curl"})
    assert layers(online, "curl example.org") == []


@pytest.mark.parametrize(
    ("level", "path", "expected"),
    [
        ("low", "notes", []),
        ("low", "/tmp/x", []),
        ("low", "../secret", ["mount", "landlock"]),
        ("low", "/etc/passwd", ["mount", "landlock"]),
        ("high", "/etc/shadow", ["mount"]),
    ],
)
def test_paths(level: str, path: str, expected: list[str]) -> None:
    assert [stop.layer for stop in path_stops(LEVELS[level], path)] == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", None),
        ("git show HEAD:file", None),
        ("git config remote.url https://example.org", None),
        ("git clone ../other", None),
        ("git clone git@Example.org:a/b.git", ["example.org"]),
        ("git clone https://user@example.org:8443/a", ["example.org"]),
        ("git pull", []),
        ("pip3 install -U requests", []),
        ("python3.11 -m pip install requests", []),
        ("python3 -m http.server", None),
        ("pip list", None),
        ("npm run build", None),
        ("npm ci", []),
        ("ssh -v me@example.org.", ["example.org"]),
        ("scp a b", None),
        ("scp a host:b", ["host"]),
        ("nc -l", None),
        ("ping 10.0.0.1", ["10.0.0.1"]),
        ("curl file:///etc/passwd", []),
        ("curl http://[broken", []),
        ("tool wss://example.org", ["example.org"]),
        ("grep https://example.org x", None),
        ("make", None),
    ],
)
def test_hosts(command: str, expected: list[str] | None) -> None:
    assert hosts(command.split()) == expected


def test_addresses() -> None:
    assert all(map(is_loopback, ["localhost", "a.localhost", "127.8.0.1", "::1"]))
    assert not any(map(is_loopback, ["example.org", "10.0.0.1", "localhost.example.org"]))
    assert all(map(is_dropped, ["169.254.0.1", "fe80::1", "host.docker.internal"]))
    assert not any(map(is_dropped, ["example.org", "10.0.0.1"]))


def test_calls() -> None:
    assert system_call(["/usr/bin/perf", "stat"]) == "perf_event_open"
    assert system_call(["ls", "mount"]) is None


@given(st.sampled_from(list(LEVELS)), st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_any_words_are_explained(level: str, words: list[str]) -> None:
    for stop in command_stops(LEVELS[level], words, "/workspace"):
        assert len(stop.message) < 300
        assert stop.message.isprintable()
