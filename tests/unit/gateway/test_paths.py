"""Where requests go, by their paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.headers import for_client, for_node
from gateway.paths import Aim, Kind, aim_of, is_target
from gateway.previews import session_of
from orchestrator.ground.errors import MisdirectedRequestError, ValidationError


def _session(session_id: str) -> Aim:
    return Aim(Kind.SESSION, session_id)


@pytest.mark.parametrize(
    ("request_line", "aim"),
    [
        ("GET /api/sessions/web", _session("web")),
        ("PUT /api/sessions/web", Aim(Kind.ENSURE, "web")),
        ("POST /api/sessions/web/spawn", _session("web")),
        ("GET /api/sessions/w%65b?x=/api/sessions/other", _session("web")),
        ("DELETE /api/sessions/web/mcp", _session("web")),
        ("POST /api/sessions", Aim(Kind.CREATE)),
        ("GET /api/sessions", Aim(Kind.NONE)),
        ("POST /api/sessions/restore", Aim(Kind.RESTORE)),
        ("POST /api/sessions/web/snapshots", _session("web")),
        ("POST /api/sessions/../snapshots", Aim(Kind.ANY)),
        ("GET /api/sessions/web/snapshots", _session("web")),
        ("POST /api/volumes", Aim(Kind.VOLUME)),
        ("GET /api/volumes", Aim(Kind.NONE)),
        ("GET /api/volumes/", Aim(Kind.NONE)),
        ("DELETE /api/volumes/c%61che?key=ci", Aim(Kind.NAMED, path="/api/volumes/c%61che")),
        ("PATCH /api/snapshots/base", Aim(Kind.NAMED, path="/api/snapshots/base")),
        ("POST /api/snapshots/base/x", Aim(Kind.NONE)),
        ("GET /api/sessions/restore", _session("restore")),
        ("PUT /api/sessions/..", Aim(Kind.ANY)),
        ("POST /api/tickets", Aim(Kind.BODY, member="session_id")),
        ("POST /api/policies/explain", Aim(Kind.BODY, member="session")),
        ("GET /api/policies", Aim(Kind.ANY)),
        ("POST /api/owners/ci/erase", Aim(Kind.ONE)),
        ("GET /api/retention?node=a", Aim(Kind.ONE)),
        ("POST /api/templates/web/build", Aim(Kind.NONE)),
        ("GET /api/templates", Aim(Kind.ANY)),
        ("GET /api/memory?x", Aim(Kind.ANY)),
        ("PUT /api/memory/1", Aim(Kind.ANY)),
        ("GET /compat/swerex/web/is_alive", _session("web")),
        ("GET /compat/openhands/web/api/git/diff", _session("web")),
        ("POST /compat/e2b/v2/sandboxes", Aim(Kind.SANDBOX)),
        ("POST /compat/e2b/volumes", Aim(Kind.VOLUME)),
        ("GET /compat/e2b/volumes/x", Aim(Kind.NAMED, path="/compat/e2b/volumes/x")),
        (
            "DELETE /compat/e2b/templates/web",
            Aim(Kind.NAMED, path="/compat/e2b/templates/aliases/web", shared=True),
        ),
        (
            "GET /compat/e2b/templates/web/tags",
            Aim(Kind.NAMED, path="/compat/e2b/templates/web/tags", shared=True),
        ),
        ("POST /compat/e2b/v3/templates", Aim(Kind.BUILD)),
        ("POST /compat/e2b/v2/templates", Aim(Kind.BUILD)),
        ("GET /compat/e2b/v3/templates", Aim(Kind.NONE)),
        ("POST /compat/e2b/templates/tags", Aim(Kind.TEMPLATE, member="target")),
        ("DELETE /compat/e2b/templates/tags", Aim(Kind.TEMPLATE, member="name")),
        (
            "POST /compat/e2b/v2/templates/web/builds/1",
            Aim(Kind.NAMED, path="/compat/e2b/templates/web/builds/1/status", stays=True),
        ),
        (
            "GET /compat/e2b/templates/web/builds/1/status?logsOffset=3",
            Aim(Kind.NAMED, path="/compat/e2b/templates/web/builds/1/status", stays=True),
        ),
        (
            "GET /compat/e2b/templates/web/files/ab",
            Aim(Kind.NAMED, path="/compat/e2b/templates/web/files/ab"),
        ),
        # The address says which node waits for them.
        ("PUT /compat/e2b/templates/web/files/ab?upload=x", Aim(Kind.NONE)),
        ("GET /compat/e2b/sandboxes", Aim(Kind.NONE)),
        ("POST /compat/e2b/sandboxes/web-paddock/pause", _session("web")),
        ("GET /compat/e2b/v2/sandboxes/web/connect", _session("web")),
        ("GET /files?path=a&signature=v1_x", Aim(Kind.SIGNED)),
        ("POST /compat/e2b/files?signature=v1_x", Aim(Kind.SIGNED)),
        ("GET /files?path=a", Aim(Kind.ANY)),
        ("GET /compat", Aim(Kind.ANY)),
        ("GET /", Aim(Kind.ANY)),
        ("GET /console/sessions/web", Aim(Kind.ANY)),
        ("GET /api", Aim(Kind.ANY)),
    ],
)
def test_where_requests_go(request_line: str, aim: Aim) -> None:
    method, path = request_line.split()
    assert aim_of(method, path) == aim


def test_what_a_header_names() -> None:
    assert aim_of("POST", "/compat/e2b/process.Process/Start", "web-paddock") == _session("web")
    assert aim_of("GET", "/files?path=x", "web") == _session("web")
    # A path that names a session is not overruled.
    assert aim_of("GET", "/api/sessions/web", "other") == _session("web")
    assert aim_of("GET", "/compat/swerex/web/", "other") == _session("web")


@given(st.text(max_size=200), st.sampled_from(("GET", "POST", "PUT")), st.text(max_size=40))
def test_any_path_has_an_aim(path: str, method: str, sandbox: str) -> None:
    aim = aim_of(method, f"/{path}", sandbox)
    assert len(aim.session_id) <= 128
    assert is_target(f"/{path}") == all("!" <= each <= "~" and each != "#" for each in path)


@pytest.mark.parametrize(
    ("host", "path", "session_id"),
    [
        ("8000-web.ports.example", "/", "web"),
        ("8000-WEB.ports.example:443", "/", "web"),
        ("8000n2-web-1.ports.example.", "/s/other/1/", "web-1"),
        ("49983-web-paddock.ports.example", "/", "web"),
        ("8000-web.evil.example", "/s/other/1/x", "other"),
        ("x8000-web.ports.example", "/", None),
        ("8000-web.other.ports.example", "/", None),
        ("previews.example", "/s/web/8000/~token/x", "web"),
        ("previews.example", "/s/web", None),
        ("previews.example", "/x/s/web/8000/", None),
    ],
)
def test_ports_of_sessions(host: str, path: str, session_id: str | None) -> None:
    assert session_of([host], path, "ports.example") == session_id


def test_two_hosts_name_no_port() -> None:
    assert session_of(["8000-web.ports.example"] * 2, "/", "ports.example") is None
    assert session_of(["8000-web.ports.example"], "/", None) is None


_NAMES = st.sampled_from(
    ("Host", "host", "Connection", "Authorization", "X-Forwarded-For", "TE", "X-Mine", "Upgrade")
) | st.text("abc-X", min_size=1, max_size=8)


def test_a_trace_goes_through() -> None:
    place = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    assert place in for_node([("Host", "a.example"), place], "10.0.0.1", "https")


@given(st.lists(st.tuples(_NAMES, st.text(max_size=20)), max_size=8))
def test_any_headers(headers: list[tuple[str, str]]) -> None:
    """What says who the client is comes from here; nothing of one hop reaches another."""
    try:
        passed = for_node(headers, "10.0.0.1", "https")
    except (MisdirectedRequestError, ValidationError):
        return
    names = [name.lower() for name, _ in passed]
    assert names.count("host") == 1
    assert not {"te", "connection", "upgrade", "transfer-encoding"} & set(names)
    own = [value for name, value in passed if name.lower() == "x-forwarded-for"]
    assert own == ["10.0.0.1"]
    sent = [value for name, value in headers if name.lower() == "authorization"]
    assert [value for name, value in passed if name.lower() == "authorization"] == sent
    for_client(headers)
