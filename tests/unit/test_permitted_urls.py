"""URLs that the control plane may call for others."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from yarl import URL

from orchestrator.ground.permitted_urls import check_plain_url, is_permitted
from orchestrator.settings.settings import Settings

PREFIX = "https://tools.example.com:8443/paddock"
PIECES = st.sampled_from(
    [*"/.@:?#%\\[]~a0\t\n ", "..", "//", "https://", "paddock", "tools.example.com", ":8443", "%2e"]
)


@pytest.mark.parametrize(
    ("url", "permitted"),
    [
        (PREFIX, True),
        (f"{PREFIX}/", True),
        (f"{PREFIX}/tickets/new", True),
        (f"{PREFIX}/a.b", True),
        ("https://tools.example.com:8443/", False),
        (f"{PREFIX}more", False),
        (f"{PREFIX}/../admin", False),
        (f"{PREFIX}/./a", False),
        (f"{PREFIX}//a", False),
        (f"{PREFIX}/%2e%2e/admin", False),
        (f"{PREFIX}/a?b=c", False),
        (f"{PREFIX}/a#b", False),
        (f"{PREFIX}/a\n", False),
        (PREFIX.replace("https", "http"), False),
        (PREFIX.replace(":8443", ""), False),
        (PREFIX.replace("https://", "https://user@"), False),
        (PREFIX.replace("tools", "TOOLS"), False),
        ("https://tools.example.com:8443.evil.example/paddock", False),
    ],
)
def test_what_is_below_a_prefix(url: str, permitted: bool) -> None:
    assert is_permitted(url, ["https://other.example", PREFIX]) == permitted
    assert not is_permitted(url, [])


@given(st.lists(PIECES, max_size=8).map("".join))
def test_what_is_permitted_goes_where_it_seems_to(rest: str) -> None:
    url = PREFIX + rest
    if not is_permitted(url, [PREFIX]):
        return
    sent = URL(url, encoded=True)
    assert (sent.scheme, sent.host, sent.port) == ("https", "tools.example.com", 8443)
    assert sent.raw_path.startswith("/paddock")
    # Nothing is left to be normalised.
    assert str(URL(url)) == url
    assert urlsplit(url).username is None


def test_the_operator_s_list_has_plain_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_plain_url(PREFIX) == PREFIX
    monkeypatch.setenv("PADDOCK_TOOL_URLS", f"{PREFIX}, http://10.0.0.7/hooks")
    assert Settings().tool_urls == (PREFIX, "http://10.0.0.7/hooks")
    monkeypatch.setenv("PADDOCK_TOOL_URLS", f"{PREFIX}?team=a")
    with pytest.raises(ValidationError, match="must look like"):
        Settings()
