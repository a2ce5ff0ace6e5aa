"""Links, addresses and headers of ports: the pure parts, with any input."""

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.previews.headers import for_client, for_program
from api.previews.paths import PreviewPath, read_path
from orchestrator.ground.serving.headers import Headers
from orchestrator.sandbox.ports.links import expiry, link_token
from orchestrator.settings.preview_address import preview_address, preview_hosts, preview_url
from orchestrator.settings.settings import Settings

SECRET = "pdk_secret-of-the-tests"
WEB = PreviewPath("web", 8000, None, "/", "")
TOKEN = link_token(SECRET, "opening", 2000)
VISIBLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)


def values(headers: Headers, name: str) -> list[str]:
    return [value for each, value in headers if each == name]


# Links.


@given(st.text(), st.integers(0, 10**11), st.integers(0, 10**11))
def test_a_link_holds_until_it_expires(opening: str, expires_at: int, now: int) -> None:
    token = link_token(SECRET, opening, expires_at)
    assert expiry(SECRET, opening, token, now) == (expires_at if now < expires_at else None)
    assert expiry(SECRET, opening + "x", token, 0) is None
    assert expiry(SECRET + "x", opening, token, 0) is None


@given(st.text(max_size=80), st.integers(0, 100), st.characters())
def test_nothing_else_is_a_link(wild: str, at: int, other: str) -> None:
    token = link_token(SECRET, "opening", 2000)
    assert expiry(SECRET, "opening", wild, 0) is None
    at %= len(token)
    altered = token[:at] + other + token[at + 1 :]
    if altered != token:
        assert expiry(SECRET, "opening", altered, 0) is None


# Addresses.


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), VISIBLE, VISIBLE)
def test_an_address_is_read_as_it_is(session_id: str, rest: str, query: str) -> None:
    rest = rest.replace("?", "")
    found = read_path(f"/s/{session_id}/8000/{rest}?{query}")
    assert found == PreviewPath(session_id, 8000, None, f"/{rest}", query)
    assert found.prefix == f"/s/{session_id}/8000"
    assert found.inside == f"/{rest}" + (f"?{query}" if query else "")


@given(st.text())
def test_no_address_names_another_session_than_it_shows(target: str) -> None:
    for text in (target, f"/s/{target}", f"/s/web/{target}"):
        found = read_path(text)
        if found is not None:
            assert text.startswith(f"{found.base}{found.rest}")
            assert text.isascii()
            assert "/" not in unquote(found.session_id)


@pytest.mark.parametrize(
    "target",
    ["", "/", "/s/web", "/s/web/", "/s/web/0/", "/s/web/65536/", "/s/web/080/", "/s//80/",
     "/S/a/1/", "//s/web/80/", "/s/../web/80/", "/s/.web/80/", "/s/w%65b/80/",
     "http://x/s/web/80/", "*"],
)  # fmt: skip
def test_what_is_no_address(target: str) -> None:
    assert read_path(target) is None


@given(VISIBLE, VISIBLE)
def test_a_link_s_token_is_not_the_program_s(rest: str, query: str) -> None:
    rest = rest.replace("?", "")
    found = read_path(f"/s/web/80/~{TOKEN}/{rest}?{query}")
    assert found == PreviewPath("web", 80, TOKEN, f"/{rest}", query)
    assert found.inside == f"/{rest}" + (f"?{query}" if query else "")
    assert found.base == f"/s/web/80/~{TOKEN}"


@given(st.text("~/.-_A1", max_size=6), st.text("~/.A1", max_size=6))
def test_what_only_resembles_a_link_is_the_program_s(before: str, after: str) -> None:
    for rest in (f"{before}~{TOKEN}{after}", f"~{TOKEN[:-1]}{after}"):
        found = read_path(f"/s/web/80/{rest}")
        assert found is not None
        assert found.base + found.inside == f"/s/web/80/{rest}"
        if found.token is not None:
            assert rest == f"~{found.token}{found.rest}"


# Headers.

NAMES = st.sampled_from(
    ["Authorization", "Cookie", "X-Forwarded-For", "Connection", "X-A", "Set-Cookie", "Location",
     "Service-Worker-Allowed", "Transfer-Encoding", "Access-Control-Allow-Origin", "Host"]
)  # fmt: skip


@given(st.lists(st.tuples(NAMES, st.text(max_size=30))))
def test_the_program_gets_no_credential_and_no_hop(pairs: list[tuple[str, str]]) -> None:
    passed = for_program(pairs, WEB._replace(token=TOKEN), "http", "public:1")
    assert TOKEN not in str(passed)
    assert not {"authorization", "connection", "transfer-encoding"} & {n.lower() for n, _ in passed}
    assert values(passed, "Host") == ["localhost:8000"]
    assert values(passed, "X-Forwarded-For") == []


@given(st.lists(st.tuples(NAMES, st.text(max_size=30))))
def test_answers_touch_nothing_beyond_their_path(pairs: list[tuple[str, str]]) -> None:
    passed = for_client(pairs, WEB)
    for cookie in values(passed, "Set-Cookie"):
        pair, *attributes = cookie.split("; ")
        assert "=" in pair
        assert [each for each in attributes if each.lower().startswith("path")] == [
            "Path=/s/web/8000/"
        ]
        assert not [each for each in attributes if each.lower().startswith("domain")]
    assert values(passed, "Service-Worker-Allowed") == []
    assert values(passed, "Access-Control-Allow-Origin") == []
    assert values(passed, "Content-Security-Policy")[-1].startswith("sandbox ")


@pytest.mark.parametrize(
    ("location", "outside"),
    [
        ("/a?b", "/s/web/8000/a?b"),
        ("http://localhost:8000/a", "/s/web/8000/a"),
        ("http://127.0.0.1:8000", "/s/web/8000/"),
        ("http://localhost:8000?a", "/s/web/8000/?a"),
        ("http://localhost:80000/", "http://localhost:80000/"),
        ("//elsewhere/", "//elsewhere/"),
        ("a", "a"),
        ("https://elsewhere/", "https://elsewhere/"),
    ],
)
def test_redirects_stay_in_the_port(location: str, outside: str) -> None:
    assert dict(for_client([("Location", location)], WEB))["Location"] == outside
    linked = dict(for_client([("Location", location)], WEB._replace(token=TOKEN)))["Location"]
    assert linked == outside.replace("/s/web/8000/", f"/s/web/8000/~{TOKEN}/")


# Settings.


@pytest.mark.parametrize(
    ("listen", "preview", "address"),
    [
        ("127.0.0.1:8700", None, ("127.0.0.1", 8701)),
        ("127.0.0.1:0", None, ("127.0.0.1", 0)),
        ("[::1]:9000", None, ("::1", 9001)),
        ("127.0.0.1:8700", "0.0.0.0:9000", ("0.0.0.0", 9000)),
        ("127.0.0.1:8700", "off", None),
    ],
)
def test_where_ports_are_served(
    listen: str, preview: str | None, address: tuple[str, int] | None
) -> None:
    assert preview_address(Settings(listen=listen, preview_listen=preview)) == address


def test_the_public_url_and_its_host() -> None:
    settings = Settings(preview_url="https://previews.example:444", allowed_hosts=("a.example",))
    assert preview_url(settings, ("127.0.0.1", 1)) == "https://previews.example:444"
    assert preview_hosts(settings) == ("a.example", "previews.example")
    assert preview_url(Settings(), ("0.0.0.0", 8701)) == "http://127.0.0.1:8701"
    assert preview_url(settings, None) is None


@pytest.mark.parametrize(
    "bad",
    [{"preview_listen": "8701"}, {"preview_listen": "127.0.0.1:8700"}, {"preview_url": "x"},
     {"preview_url": "http://a/b"}, {"preview_url": "http://u@a"}],
)  # fmt: skip
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="preview"):
        Settings(**bad)
