"""Origins and base paths of programs behind ports."""

import pytest

from api.previews.base_paths import base_paths, outside, own_path, serves_elsewhere
from api.previews.headers import for_program, is_own
from api.previews.paths import PreviewPath

TOKEN = "1." + "a" * 43
LINKED = PreviewPath("web", 8000, TOKEN, "/tree", "x=1")
KEYED = LINKED._replace(token=None)
PREFIX, BASE = "/s/web/8000", f"/s/web/8000/~{TOKEN}"


def test_only_a_page_of_the_port_is_its_own() -> None:
    for origin, host, linked, own in (
        ("null", "a.example", True, True),
        ("null", "a.example", False, False),
        ("http://a.example", "a.example", False, True),
        ("http://a.example", "a.example:80", False, True),
        ("https://A.example", "a.example", True, True),
        ("http://localhost:8701", "127.0.0.1:8701", True, True),
        ("http://localhost:8700", "127.0.0.1:8701", True, False),
        ("http://10.0.0.9:8701", "10.0.0.8:8701", True, False),
        ("http://b.example", "a.example", True, False),
        ("http://a.example.b.example", "a.example", True, False),
        ("http://a.example@b.example", "a.example", True, False),
        ("http://a.example:x", "a.example", True, False),
        ("file://", "a.example", True, False),
        ("", "a.example", True, False),
    ):
        assert is_own(origin, "http", host, linked=linked) is own, (origin, host, linked)


def test_an_own_page_s_origin_agrees_with_the_host() -> None:
    sent = [("Origin", "null"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")]
    headers = dict(for_program(sent, LINKED, "http", "a.example"))
    assert (headers["Origin"], headers["Host"]) == ("http://localhost:8000", "localhost:8000")
    assert headers["Sec-Fetch-Mode"] == "cors"
    assert "Sec-Fetch-Site" not in headers
    strange = [("Origin", "http://b.example"), ("Sec-Fetch-Site", "cross-site")]
    passed = for_program(strange, LINKED, "http", "a.example")
    assert set(strange) <= set(passed)
    twice = [("Origin", "null"), ("Origin", "http://b.example")]
    assert [
        each for each in for_program(twice, LINKED, "http", "a") if each[0] == "Origin"
    ] == twice


def test_a_page_s_own_token_reaches_its_program() -> None:
    for sent, path, passes in (
        (["token 1a2b"], LINKED, True),
        (["Token 1a2b"], LINKED, True),
        (["token 1a2b"], KEYED, False),
        (["Bearer H-1"], LINKED, False),
        (["Bearer token 1"], LINKED, False),
        (["Basic dTpw"], LINKED, False),
        (["token a b"], LINKED, False),
        (["token"], LINKED, False),
        (["token 1", "Bearer H-1"], LINKED, False),
        (["token 1", "token 2"], LINKED, False),
    ):
        headers = for_program([("Authorization", each) for each in sent], path, "http", "a.example")
        passed = [value for name, value in headers if name == "Authorization"]
        assert passed == (sent if passes else []), sent


def test_the_program_s_base_path_is_found_by_its_answers() -> None:
    assert base_paths(LINKED, None) == ["", PREFIX, BASE]
    assert base_paths(KEYED, None) == ["", PREFIX]
    assert base_paths(LINKED, BASE) == [BASE]
    assert base_paths(LINKED._replace(rest="/"), BASE) == [BASE, "", PREFIX]
    bases = ["", PREFIX, BASE]
    for base, status, location, elsewhere in (
        ("", 200, None, False),
        ("", 404, None, True),
        ("", 302, "/login", False),
        ("", 302, f"{PREFIX}/tree", True),
        ("", 302, f"http://localhost:8000{BASE}/tree", True),
        (PREFIX, 302, f"{PREFIX}/tree", False),
        (PREFIX, 302, f"{BASE}/tree", True),
        (BASE, 302, f"{BASE}/tree?next=/", False),
        (BASE, 302, f"{PREFIX}x/tree", False),
        (BASE, 404, None, True),
    ):
        told = serves_elsewhere(base, bases, status, location)
        assert told is elsewhere, (base, status, location)


@pytest.mark.parametrize("base", ["", PREFIX, BASE])
def test_a_redirect_gets_the_address_once(base: str) -> None:
    for location in ("/a?b", f"{base}/a?b", f"http://127.0.0.1:8000{base}/a?b", f"{BASE}/a?b"):
        assert outside(location, LINKED, base) == f"{BASE}/a?b"
    assert outside(base or "/", LINKED, base) == f"{BASE}/"
    for location in ("a/b", "?x", "//other/", "/\\other", "http://other/a", "http://[", "#a"):
        assert outside(location, LINKED, base) == location
    # Of a link that was made later.
    assert outside(f"{BASE}/a", LINKED._replace(token="2." + "b" * 43), BASE).endswith("b/a")


def test_another_port_is_another_program() -> None:
    assert own_path("http://localhost:8001/a", 8000) is None
    assert own_path("http://localhost:8000/a#b", 8000) == "/a#b"
    assert own_path("http://x@localhost:8000/a", 8000) is None
