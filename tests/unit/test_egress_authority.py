"""The authority of inspected connections: kept over restarts, replaced in time, its key private."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orchestrator.ground.config_error import ConfigError
from orchestrator.sandbox.egress.authority import Authority, authority_directory, public_directory
from orchestrator.sandbox.egress.interception import Interception


def test_the_authority_is_kept_and_its_key_is_not_public(tmp_path: Path) -> None:
    Authority(tmp_path)
    first = (public_directory(tmp_path) / "ca.pem").read_bytes()
    Authority(tmp_path)
    assert (public_directory(tmp_path) / "ca.pem").read_bytes() == first
    assert first in (public_directory(tmp_path) / "bundle.pem").read_bytes()
    key = authority_directory(tmp_path) / "ca.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    assert authority_directory(tmp_path).stat().st_mode & 0o777 == 0o700
    assert b"PRIVATE" in key.read_bytes()
    for path in public_directory(tmp_path).iterdir():
        assert b"PRIVATE" not in path.read_bytes()


def test_an_authority_that_ends_soon_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.sandbox.egress.authority._LIFE", timedelta(days=60))
        patched.setattr("orchestrator.sandbox.egress.authority._RENEWED_BEFORE", timedelta(days=30))
        Authority(tmp_path)
    path = public_directory(tmp_path) / "ca.pem"
    first = path.read_bytes()
    Authority(tmp_path)
    new, former = x509.load_pem_x509_certificates(path.read_bytes())
    # What it signed is still trusted.
    assert former == x509.load_pem_x509_certificate(first)
    assert new.not_valid_after_utc > former.not_valid_after_utc
    assert path.read_bytes() in (public_directory(tmp_path) / "bundle.pem").read_bytes()
    Authority(tmp_path)
    assert x509.load_pem_x509_certificates(path.read_bytes()) == [new, former]


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_broken_authority_is_named(tmp_path: Path, text: str) -> None:
    authority_directory(tmp_path).mkdir()
    (authority_directory(tmp_path) / "ca.pem").write_text(text)
    with pytest.raises(ConfigError, match=r"egress-ca/ca\.pem: must be"):
        Authority(tmp_path)


BEGIN, END = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "content",
    [None, "", "no certificate", f"{BEGIN}AAAA\n{END}", f"{BEGIN}é\n{END}", f"{BEGIN}AAAA"],
)
def test_trusted_roots_must_be_certificates(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "more.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"more\.pem: "):
        Interception(tmp_path, path)


def test_words_between_trusted_roots_are_ignored(tmp_path: Path) -> None:
    Authority(tmp_path)
    root = (public_directory(tmp_path) / "ca.pem").read_text()
    path = tmp_path / "more.pem"
    path.write_text(f"# Autorité\n{root}\nsubject: Ž\n{root}")
    Interception(tmp_path, path)
