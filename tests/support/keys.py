"""Entries of keys files for tests."""

from orchestrator.rules.access.keys import digest


def entry(name: str, secret: str, role: str = "operator", more: str = "") -> str:
    """A key's table; `more` are further lines."""
    return f'[[keys]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest(secret)}"\n{more}\n'
