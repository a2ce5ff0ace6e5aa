import os
from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.settings import Settings, load_settings
from orchestrator.settings.values import split_address
from sandbox_agent.decide.facilities import WITHOUT


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith("PADDOCK_") or name == "SESSION_WORKSPACES_DIR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.address == ("127.0.0.1", 8700)
    assert settings.state_dir == tmp_path / "data"
    assert settings.workspaces_dir == tmp_path / "data" / "session-workspaces"
    assert settings.image == "paddock/sandbox:latest"
    assert settings.images == ()
    assert settings.admin_key is None
    assert settings.idle_timeout == 1800


def test_the_kernel_is_not_made_less_but_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "mdwe")
    with pytest.raises(ConfigError, match=r"^PADDOCK_TEST_WITHOUT is for tests, .*: unset it$"):
        load_settings()
    monkeypatch.setenv(WITHOUT, "")
    assert load_settings()


def test_settings_never_change() -> None:
    settings = load_settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.max_active = 3


def test_workspaces_directory_by_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_STATE_DIR", "/srv/paddock")
    assert load_settings().workspaces_dir == Path("/srv/paddock/session-workspaces")
    monkeypatch.setenv("SESSION_WORKSPACES_DIR", "/srv/old")
    assert load_settings().workspaces_dir == Path("/srv/old")
    monkeypatch.setenv("PADDOCK_WORKSPACES_DIR", "/srv/new")
    assert load_settings().workspaces_dir == Path("/srv/new")


def test_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "paddock.toml"
    file.write_text('max_active = 5\nlisten = "[::1]:80"\nimages = ["a:1"]\n')
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(file))
    monkeypatch.setenv("PADDOCK_MAX_ACTIVE", "7")
    monkeypatch.setenv("PADDOCK_KEYS_FILE", "")
    settings = load_settings()
    assert settings.max_active == 7
    assert settings.address == ("::1", 80)
    assert settings.images == ("a:1",)
    assert settings.keys_file is None


def test_images_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_IMAGES", "a:1, b/c:2 ,")
    assert load_settings().images == ("a:1", "b/c:2")


def test_name_servers_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_RESOLVERS", "10.0.0.2, 10.0.0.3,10.0.0.2")
    assert load_settings().resolvers == ("10.0.0.2", "10.0.0.3")


def test_origins_of_pages_are_as_browsers_send_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = "HTTPS://App.Example.org:443, http://localhost:8080,http://[::1]:80"
    monkeypatch.setenv("PADDOCK_CORS_ORIGINS", given)
    wanted = ("https://app.example.org", "http://localhost:8080", "http://[::1]")
    assert load_settings().cors_origins == wanted


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "https://*.example.org", "https://a.example/", "app.example.org", "ws://a.b"],
)
def test_what_is_no_origin_of_pages_is_refused(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_CORS_ORIGINS", f"https://a.example,{origin}")
    assert "PADDOCK_CORS_ORIGINS" in (problem_of_settings() or "")


def test_foreign_protocols_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_COMPAT", "swerex, openhands")
    assert load_settings().compat == ("swerex", "openhands")
    monkeypatch.setenv("PADDOCK_COMPAT", "swerex,never")
    told = problem_of_settings() or ""
    assert "PADDOCK_COMPAT" in told
    assert "'swerex'" in told


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_any_word_is_a_setting_or_is_refused_by_name(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    variable = f"PADDOCK_{name.upper()}"
    for word in ("\n", "x", "-1", "1e999", "nan", "[", "{", "[" * 10_000, "{}", ":", "\udcff"):
        monkeypatch.setenv(variable, word)
        problem = problem_of_settings()
        # A setting that depends on it may be the one that is named.
        assert problem is None or problem.startswith("PADDOCK_"), word[:8]


def problem_of_settings() -> str | None:
    """What is told about the environment."""
    try:
        load_settings()
    except ConfigError as error:
        return str(error)
    return None


def test_one_member_of_a_setting_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_WARM_SANDBOXES", "3")
    monkeypatch.setenv("PADDOCK_WARM_LEAST", '{"low": 1}')
    monkeypatch.setenv("PADDOCK_WARM_LEAST__HIGH", "2")
    assert load_settings().warm_least == {"low": 1, "high": 2}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PADDOCK_LISTEN", "8700"),
        ("PADDOCK_LISTEN", ":8700"),
        ("PADDOCK_LISTEN", "::1:8700"),
        ("PADDOCK_LISTEN", "localhost:99999"),
        ("PADDOCK_LISTEN", "localhost:x"),
        ("PADDOCK_IMAGE", "with space"),
        ("PADDOCK_IMAGES", "ok,-bad"),
        ("PADDOCK_RESOLVERS", "127.0.0.53"),
        ("PADDOCK_RESOLVERS", "dns.example"),
        ("PADDOCK_RESOLVERS", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"),
        ("PADDOCK_MAX_ACTIVE", "0"),
        ("PADDOCK_MAX_ACTIVE", "many"),
        ("PADDOCK_UID_COUNT", "4000000000"),
        ("PADDOCK_ENGINE_TIMEOUT", "nan"),
        ("PADDOCK_ENGINE_TIMEOUT", "0"),
        ("PADDOCK_IDLE_TIMEOUT_MAX", "60"),
        ("PADDOCK_DOCKER_HOST", "/var/run/docker.sock"),
        ("PADDOCK_PIP_INDEX", "example.org/hook"),
        ("PADDOCK_PIP_INDEX", "ftp://example.org"),
        ("PADDOCK_PIP_INDEX", "https://user:word@example.org/"),
        ("PADDOCK_PIP_INDEX", "https://example.org/a b"),
        ("PADDOCK_ADMIN_KEY", "too-short-key"),
        ("PADDOCK_ADMIN_KEY", "no spaces in a key, please"),
    ],
)
def test_bad_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    message = str(caught.value)
    assert message.startswith(f"{variable}: ")
    assert "\n" not in message
    if variable == "PADDOCK_ADMIN_KEY":
        assert value not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_activ = 1", "line 1: max_activ: no such setting"),
        ("max_active = 'x'", "line 1: max_active: "),
        ("max_active = ", "Invalid value"),
        ("[limits]\na = 1", "line 1: limits: no such setting"),
    ],
)
def test_bad_files_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "paddock.toml"
    file.write_text(text)
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(file))
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{file}: {expected}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_settings()


def test_the_admin_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ADMIN_KEY", "a-key-that-is-long-enough")
    settings = load_settings()
    assert settings.admin_key is not None
    assert "long-enough" not in repr(settings)


@pytest.mark.parametrize("name", ["approval_webhook_url", "approval_webhook_secret"])
@pytest.mark.parametrize("in_file", [False, True])
def test_a_removed_setting_shows_the_hook_that_replaces_it(
    name: str, in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "paddock.toml"
    path.write_text(f'{name} = "https://example.org/secret"' if in_file else "")
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(path))
    if not in_file:
        monkeypatch.setenv(f"PADDOCK_{name.upper()}", "https://example.org/secret")
    with pytest.raises(ConfigError, match="(?i)" + name) as refused:
        load_settings()
    said, *entry = str(refused.value).splitlines()
    assert "example.org" not in str(refused.value)
    assert (len(entry), "PADDOCK_CONFIG_FILE" in said) == (4, True)
    path.write_text("\n".join(entry))
    monkeypatch.delenv(f"PADDOCK_{name.upper()}", raising=False)
    assert load_settings().hooks["approvals"].events == ("approval.requested",)


def test_split_address() -> None:
    assert split_address("0.0.0.0:0") == ("0.0.0.0", 0)
    with pytest.raises(ValueError, match="host:port"):
        split_address("host:٣")
