"""Manifests for tests: the documented example, and small ones."""

from pathlib import Path

from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.session_loader import parse_manifest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tools"
PSQL = FIXTURES / "psql_session.clad.toml"
MINIMAL = """
[tool]
name = "calc"
mode = "session"

[session]
startup_command = "bc -q"
ready_pattern = "^> $"

[session.commands.add]
pattern = "^[0-9]+ [+] [0-9]+$"

[output]
"""
_HEAD = MINIMAL.partition("[session.commands.add]")[0]


def parse(text: str) -> Manifest:
    """Parses a manifest."""
    return parse_manifest(text.encode(), "test.clad.toml")


def with_commands(commands: str, *, tool: str = "", interaction: str = "") -> Manifest:
    """A small manifest with these commands, and with additions to some of its tables."""
    head = _HEAD.replace('mode = "session"\n', f'mode = "session"\n{tool}\n')
    return parse(f"{head}{interaction}\n{commands}\n[output]\n")
