"""Exports of the configuration: what is wrong is named with its file, its line and its remedy."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.operate.exports.open_exports import made_exports
from orchestrator.settings.operator_exports import OperatorExport, load_tls, load_token
from orchestrator.settings.settings import load_settings
from orchestrator.settings.toml_lines import line_of
from tests.support.certificates import Authority

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "paddock.toml"
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(path))
    return path


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('url = "ftp://a.example/"', "line 3: exports.siem.url: must look like https://"),
        ('url = "http://logs.example/"', "line 3: exports.siem.url: must be https"),
        ('url = "https://me@logs.example/"', "line 3: exports.siem.url: must look like"),
        ('syslog = "logs.example"', "line 3: exports.siem.syslog: must be host:port"),
        ('syslog = "logs.example:0"', "line 3: exports.siem.syslog: must be host:port"),
        ('syslog = "logs.example:70000"', "line 3: exports.siem.syslog: the port must be"),
        ('format = "cef"', "line 3: exports.siem.format: Input should be 'ocsf' or 'record'"),
        ('since = "yesterday"', "line 3: exports.siem.since: Input should be"),
        ('colour = "red"', "line 3: exports.siem.colour: no such setting"),
        ("", "line 2: exports.siem: must have one of file, syslog and url"),
        ('file = "/a"\nurl = "https://a.example/"', "must have one of file, syslog and url"),
        ('file = "/a"\ngzip = true', "gzip is for url only: remove it"),
        ('file = "/a"\nca_file = "/b"', "ca_file is for syslog or url only: remove it"),
        ('syslog = "a.example:1"\ntoken_file = "/b"', "token_file is for url only: remove it"),
        ('syslog = "a.example:1"\ncert_file = "/b"', "must have both cert_file and key_file"),
    ],
)
def test_what_is_wrong_is_named(config: Path, line: str, why: str) -> None:
    config.write_text(f'log_level = "info"\n[exports.siem]\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{config}: line ")
    assert why in str(caught.value)


def test_names_and_files_are_checked_together(config: Path) -> None:
    config.write_text('[exports.Siem]\nfile = "/a"\n')
    with pytest.raises(ConfigError, match="line 1: exports: 'Siem' is not a name"):
        load_settings()
    config.write_text('[exports.a]\nfile = "/a"\n[exports.b]\nfile = "/x/../a"\n')
    with pytest.raises(ConfigError, match="two exports have the same file"):
        load_settings()
    config.write_text("".join(f'[exports.e{n}]\nfile = "/{n}"\n' for n in range(17)))
    with pytest.raises(ConfigError, match="there may be at most 16"):
        load_settings()


def test_the_examples_of_the_documents_are_valid(config: Path) -> None:
    text = (ROOT / "docs" / "operations" / "logs.md").read_text()
    for part in text.split("```toml\n")[1:]:
        config.write_text(part.partition("```")[0])
        load_settings()


def test_files_are_read_at_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "x"
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    url = "https://a.example/"
    pair = Authority(tmp_path).sign("one")
    for export, why in (
        (OperatorExport(file=missing), f"{missing.parent}: is not a directory"),
        (OperatorExport(url=url, token_file=missing), "No such file or directory"),
        (OperatorExport(url=url, token_file=broken), "visible ASCII characters"),
        (OperatorExport(syslog="a.example:1", ca_file=missing), f"{missing}: No such file"),
        (OperatorExport(syslog="a.example:1", ca_file=broken), f"{broken}: must be PEM"),
        (OperatorExport(url=url, cert_file=broken, key_file=pair.key), f"{broken}: must be PEM"),
    ):
        with pytest.raises(ConfigError, match=r"^exports: siem: ") as caught:
            made_exports({"siem": export}, None, None, "i")  # type: ignore[arg-type]
        assert why in str(caught.value)
        assert "no certificate" not in str(caught.value)


def test_tokens_and_certificates_are_those_of_now(tmp_path: Path) -> None:
    token = tmp_path / "token"
    export = OperatorExport(url="https://a.example/", token_file=token)
    for text in ("first-token", "second-token\n"):
        token.write_text(text)
        found = load_token("siem", export)
        assert found is not None
        assert found.get_secret_value() == text.strip()
    load_tls("siem", export)


def test_lines_of_a_file() -> None:
    text = 'a = 1\n[exports."x"]\n# no = 1\nurl = "u"\n[other]\nurl = 2\nb.c = 3\n'
    assert line_of(text, ("a",)) == 1
    assert line_of(text, ("exports", "x", "url")) == 4
    assert line_of(text, ("exports", "x", "file")) == 2
    assert line_of(text, ("other", "b", "c")) == 7
    assert line_of(text, ("nothing",)) is None


@given(st.text(), st.lists(st.text() | st.integers(), max_size=4))
def test_any_file_has_an_answer(text: str, place: list[int | str]) -> None:
    line = line_of(text, place)
    assert line is None or 1 <= line <= len(text.splitlines())
