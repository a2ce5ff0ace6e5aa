"""Host names of ports, and where they are: the pure parts, with any input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.previews.own_origin import cookie, tokens
from orchestrator.sandbox.ports.host_names import NamedPort, host_label, read_label
from orchestrator.settings.preview_address import PreviewOrigin
from orchestrator.settings.settings import Settings

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", fullmatch=True)


@given(st.integers(1, 65535), IDS, st.integers(1, 999_999_999))
def test_a_label_names_one_port_of_one_session(port: int, session_id: str, number: int) -> None:
    label = host_label(port, session_id, number)
    if label is None:
        assert "." in session_id or len(session_id) > 46
    else:
        assert read_label(label) == NamedPort(port, session_id.lower(), number)
        assert len(label) <= 63
        assert "." not in label


@given(st.text(), st.from_regex(r"[0-9n]{0,8}-?[a-z0-9._-]{0,60}", fullmatch=True))
def test_no_port_has_two_labels(wild: str, close: str) -> None:
    for label in (wild, close):
        named = read_label(label)
        if named is not None:
            assert host_label(*named) == label


@pytest.mark.parametrize(
    ("url", "domain", "named"),
    [
        ("http://127.0.0.1:8701", None, "http://8000-web.localhost:8701"),
        ("http://127.0.0.2:8701", None, "http://8000-web.localhost:8701"),
        ("http://[::1]:8701", None, "http://8000-web.localhost:8701"),
        ("http://localhost", None, "http://8000-web.localhost"),
        ("http://10.0.0.1:8701", None, None),
        ("https://previews.example", None, None),
        ("https://previews.example", "ports.example", "https://8000-web.ports.example"),
        ("http://127.0.0.1:8701", "ports.example", "http://8000-web.ports.example:8701"),
        (None, "ports.example", None),
    ],
)
def test_where_a_port_has_its_host(url: str | None, domain: str | None, named: str | None) -> None:
    assert PreviewOrigin(url, domain).named("8000-web") == named


def test_a_domain_is_a_name_without_a_wildcard() -> None:
    assert Settings(preview_domain="Ports.Example").preview_domain == "ports.example"
    for bad in ("*.ports.example", ".example", "a.b.", "a..b", "127.0.0.1", "[::1]", "a:80", "a/b",
                "", "-a.b", "ä.example", "x" * 64, "a." * 95 + "b"):  # fmt: skip
        with pytest.raises(ValueError, match="preview_domain"):
            Settings(preview_domain=bad)


@given(st.lists(st.text(max_size=20), max_size=20))
def test_cookies_are_read_within_bounds(lines: list[str]) -> None:
    own = cookie("1.a", 5, secure=False).partition(";")[0]
    found = tokens([("Cookie", f"{own}; " + line) for line in lines])
    assert len(found) == min(8, len(lines))
    assert tokens([("cookie", cookie("1.a", 5, secure=True))]) == ["1.a"]
