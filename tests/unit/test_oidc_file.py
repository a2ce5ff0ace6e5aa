"""The operator's file of issuers: its mistakes, and what is loaded without it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.oidc.issuers_file import load_issuers

_DOCUMENT = Path(__file__).parents[2] / "docs" / "sign-in.md"
GOOD = _DOCUMENT.read_text().split("```toml\n")[1].split("```")[0]


def test_the_documents_example_is_read_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(GOOD)
    (terms,) = load_issuers(file)
    assert (terms.name, len(terms.rules)) == ("corp", len(tomllib.loads(GOOD)["oidc"][0]["rules"]))
    principal = terms.principal("alice@corp", {"groups": ["engineers"]})
    assert principal is not None
    assert (principal.bounds.max_level, principal.limits.max_sessions) == ("medium", 5)


@pytest.mark.parametrize(
    ("old", "new", "line", "named"),
    [
        ('"https://sso.example.org"', '"http://sso.example.org"', 4, "issuer must begin with"),
        ('name = "corp"', 'name = "Corp"', 2, "name"),
        ('client_id = "paddock"', "", 1, "client_id"),
        ('role = "admin"', 'role = "king"', 11, "role"),
        ("max_sessions = 5", 'max_sessions = "5"', 15, "max_sessions"),
        ("max_sessions = 5", "color = 5", 15, "color"),
        ('when = { groups = "platform" }', "when = {}", 12, "when"),
        ('audience = "https://paddock.example.org"', 'audience = "paddock"', 1, 'token = "id"'),
        ('scopes = ["openid"', 'algorithms = ["HS256"]\nscopes = ["openid"', 9, "algorithms"),
        (
            'client_id = "paddock"',
            'client_id = "paddock"\nbackchannel_logout = 1',
            7,
            "backchannel",
        ),
        (
            'client_id = "paddock"',
            'client_id = "paddock"\nbackchannel_logout = true\nuser = "email"',
            *(1, 'user = "sub"'),
        ),
        ('role = "admin"', 'role = "admin"\nold_sha256 = "x"', 11, "old_sha256"),
        ("[[oidc]]", "[other]\n[[oidc]]", 0, "other"),
    ],
)
def test_mistakes_name_the_line_and_the_remedy(
    tmp_path: Path, old: str, new: str, line: int, named: str
) -> None:
    file = tmp_path / "oidc.toml"
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_issuers(file)
    said = str(caught.value)
    assert said.startswith(f"{file}:{line}: " if line else f"{file}: ")
    assert named in said
    assert "sign-in.md" in said


def test_without_the_file_the_library_is_not_loaded() -> None:
    program = (
        "import sys, api.server\n"
        "from orchestrator.rules.access.keys import KeyRing\n"
        "from orchestrator.rules.access.users import SignedInUsers\n"
        "from orchestrator.rules.oidc.issuers_file import IssuersFile\n"
        "from orchestrator.rules.oidc.sign_in import SignIn\n"
        "found = SignIn(IssuersFile(None), KeyRing({}), SignedInUsers())\n"
        "assert not found.enabled\n"
        "assert not any(name.split('.')[0] == 'joserfc' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
