"""The rights of each role: all operations with every kind of credential."""

import asyncio
from typing import Any

import pytest

from api.catalog import OPERATIONS
from api.shape.access import ROLES, Access
from api.shape.operation import Operation
from orchestrator.ground.store.database import Database
from orchestrator.rules.access.keys import Role
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_exec import read_event
from tests.api.test_inspection import ended
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS

VIEWER = "pdk_viewer-of-the-operators-sessions"
VIEWER_OF_ALL = "pdk_viewer-of-all-the-sessions"
METRICS = "pdk_key-of-the-monitoring"

# Every operation is listed on purpose, so that a new one must be assigned to an access.
DECLARED = {
    Access.OPEN: "healthz readyz list_issuers redeem_sign_in end_sign_in",
    Access.SELF: "show_caller",
    Access.READ: "inspect_session show_budget show_settings list_processes read_process list_tools "
    "list_ports read_output list_code_contexts "
    "list_terminals read_terminal read_transcript read_recording follow_session search_audit "
    "count_audit "
    "export_audit verify_audit explain_policy show_egress list_egress_drafts show_pack "
    "list_session_secrets list_shells read_shell",
    Access.READ_ALL: "list_sessions list_policies list_images list_approvals follow_all list_nodes "
    "search_all_audit list_secrets list_hooks list_memory show_usage count_denials list_all_tools "
    "list_volumes show_volume list_snapshots show_snapshot list_templates show_template",
    Access.WORK: "exec feed_process signal_process read_file write_file delete_file list_files "
    "describe_file stat_file search_files patch_files copy_file change_mode watch_files "
    "read_archive write_archive list_proposals rollback_proposals "
    "make_directory make_link move_file open_terminal interact close_terminal "
    "create_shell run_in_shell give_shell_input interrupt_shell close_shell "
    "interrupt_session run_turn list_turns read_turn list_models "
    "search_memory write_memory show_bootstrap "
    "send_messages render_session queue_messages open_run_socket read_timeline "
    "run_code create_code_context restart_code_context interrupt_code_context "
    "remove_code_context "
    "read_packed_file converse listen_to_conversation end_conversation",
    Access.MANAGE: "create_session ensure_session close_session pause_session resume_session "
    "complete_session abort_session rotate_handle set_episode change_settings decide_approval "
    "commit_proposals take_snapshot restore_session spawn_session fork_session "
    "add_memory change_memory remove_memory create_volume remove_volume "
    "create_snapshot change_snapshot remove_snapshot build_template "
    "add_hook remove_hook list_hook_deliveries retry_hook_delivery "
    "open_port close_port set_secret remove_secret set_session_secret remove_session_secret "
    "change_egress add_egress_rules refine_session "
    "create_ticket open_live_terminal report_usage",
    Access.ADMIN: "open_break_glass close_break_glass archive_audit reindex_audit list_archives "
    "show_retention export_owner erase_owner "
    "list_keys create_key revoke_key rotate_key "
    "list_users revoke_user "
    "show_node drain_node undrain_node forget_node move_session",
    Access.METRICS: "metrics",
}
_MISSING = {
    *("redeem_sign_in", "end_sign_in"),
    *("show_pack", "read_shell", "show_volume", "show_snapshot"),
    *("show_template", "build_template"),
}
_STREAMS = {"follow_session", "follow_all", "read_output"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("other", OTHER_KEY)
        + entry("dash", VIEWER, "viewer", 'owner = "operator"')
        + entry("board", VIEWER_OF_ALL, "viewer", 'scope = "all"')
        + entry("prometheus", METRICS, "metrics")
    )
    return settings


def test_every_operation_is_declared() -> None:
    declared = {name: access for access, names in DECLARED.items() for name in names.split()}
    assert {operation.id: operation.access for operation in OPERATIONS} == declared


def test_viewers_and_metrics_change_nothing() -> None:
    """Operations that change something do not use GET; the explanation is a question, by POST."""
    for operation in OPERATIONS:
        if Role.VIEWER in ROLES[operation.access] and operation.access is not Access.OPEN:
            assert operation.method == "GET" or operation.id == "explain_policy"
        if Role.METRICS in ROLES[operation.access] and operation.access is not Access.OPEN:
            assert operation.path in ("/metrics", "/api/caller")


def _request(operation: Operation, command_id: str) -> tuple[str, dict[str, Any]]:
    path = operation.path.replace("{session_id}", "box").replace("{command_id}", command_id)
    path = path.replace("{terminal_id}", "pty-0000000000000000").replace("{port}", "8000")
    path = path.replace("{number}", "1").replace("{entry_id}", "mem-0000000000000000")
    path = path.replace("{name}", "openai").replace("{approval_id}", "apr-0000000000000000")
    path = path.replace("{hook_id}", "hook-0000000000000000")
    path = path.replace("{delivery_id}", "dlv-0000000000000000")
    if operation.id in ("read_file", "write_file", "delete_file"):
        path += "?path=a.txt"
    if operation.upload:
        return path, {"data": b"logout_token=x"}
    if operation.body is None:
        return path, {}
    examples = dict(operation.examples)
    body: Any = examples.get("path") or next(iter(examples.values()), {})
    return path, {"json": body}


async def _recorded(database: Database) -> int:
    """The number of events of all sessions."""
    return await database.read(
        lambda conn: int(conn.execute("SELECT count(*) FROM events").fetchone()[0])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "role"),
    [(VIEWER, Role.VIEWER), (VIEWER_OF_ALL, Role.VIEWER), (METRICS, Role.METRICS)],
)
async def test_who_only_reads_changes_nothing(api: Api, key: str, role: Role) -> None:
    await api.session(id="box", key=OPERATOR_KEY)
    api.agent.plays["cat"] = Play(stdout=b"said", holds=True)
    command = await api.json(
        "POST",
        "/api/sessions/box/exec",
        status=202,
        json={"argv": ["cat"], "background": True},
    )
    shown = await api.json("GET", "/api/sessions/box")
    recorded, asked = await _recorded(api.plane.database), len(api.agent.requests)
    for operation in OPERATIONS:
        if operation.id in _STREAMS and role in ROLES[operation.access]:
            continue
        path, arguments = _request(operation, command["command_id"])
        if operation.access is Access.OPEN or role in ROLES[operation.access]:
            response = await api.call(operation.method, path, key=key, **arguments)
            missing = "0000" in path or operation.id in _MISSING  # it has none
            wanted = {404} if missing else {200}
            assert response.status in wanted, operation.id
        elif operation.method == "HEAD":  # it has no body
            refused = await api.call(operation.method, path, key=key, **arguments)
            assert refused.status == 403
        else:
            where = (operation.method, path)
            await api.problem(403, "permission_denied", *where, key=key, **arguments)
    # A viewer's read must not count as the caller's: the agent keeps unread output for the caller.
    since = api.agent.requests[asked:]
    assert [method for method, _ in since] == ["output"] * (role is Role.VIEWER)
    assert all(params["looks"] for _, params in since)
    assert await _recorded(api.plane.database) == recorded
    now = await api.json("GET", "/api/sessions/box")
    volatile = {"budget": None, "usage": None, "processes": None, "telemetry": None}
    assert now | volatile == shown | volatile
    # The handle that the creator was given is still valid.
    await api.json("DELETE", "/api/sessions/box")


async def test_a_viewer_may_give_no_level(api: Api) -> None:
    for key, allowed in ((VIEWER, False), (OPERATOR_KEY, True)):
        levels = (await api.json("GET", "/api/policies", key=key))["items"]
        assert {(each["allowed"], each["rule"]) for each in levels} == {(allowed, None)}


async def test_a_viewer_sees_the_sessions_of_its_owner(api: Api) -> None:
    mine = await api.session(key=OPERATOR_KEY, id="mine")
    await api.session(key=OTHER_KEY, id="theirs")
    for key, names in ((VIEWER, ["mine"]), (VIEWER_OF_ALL, ["theirs", "mine"])):
        listed = await api.json("GET", "/api/sessions", key=key)
        assert [session["id"] for session in listed["items"]] == names
        assert (await api.json("GET", "/api/sessions/mine", key=key))["id"] == "mine"
    for rest in ("", "/audit", "/audit/export", "/events", "/processes", "/ptys", "/settings"):
        await api.problem(404, "not_found", "GET", f"/api/sessions/theirs{rest}", key=VIEWER)
    body = {"session": "theirs", "command": "ls"}
    await api.problem(404, "not_found", "POST", "/api/policies/explain", key=VIEWER, json=body)
    assert "handle" not in str(await api.json("GET", "/api/sessions/mine", key=VIEWER_OF_ALL))
    # The same right applies to ended sessions.
    for name in ("mine", "theirs"):
        await api.json("DELETE", f"/api/sessions/{name}")
    for key, status in ((VIEWER, 404), (VIEWER_OF_ALL, 200), (OTHER_KEY, 200)):
        response = await api.call("GET", "/api/sessions/theirs/audit", key=key)
        assert response.status == status
    await api.problem(401, "unauthorized", "GET", "/api/sessions/mine", key=mine["handle"])


async def test_a_viewer_reads_output_but_not_what_is_stored_of_it(api: Api) -> None:
    await api.session(key=OPERATOR_KEY, id="mine", permission_level="high")
    api.agents.plays["make"] = Play(b"text")
    body = {"command": "make"}
    done = await api.json("POST", "/api/sessions/mine/exec", key=OPERATOR_KEY, json=body)
    api.agent.requests.clear()
    for key in (VIEWER, OPERATOR_KEY):
        path = f"/api/sessions/mine/processes/{done['command_id']}"
        assert (await api.json("GET", path, key=key))["output"][0]["text"] == "text"
        sse = {"Accept": "text/event-stream"}
        await (await api.call("GET", path, key=key, headers=sse)).read()
    asked = [params["whole"] for method, params in api.agent.requests if method == "output"]
    assert asked == [False, False, True, True]


async def test_a_viewers_stream_has_its_owners_events(api: Api) -> None:
    headers = {"Authorization": f"Bearer {VIEWER}"}
    async with (
        asyncio.timeout(WAIT_SECONDS),
        api.client.get("/api/events", headers=headers) as response,
    ):
        await api.session(key=OTHER_KEY, id="theirs")
        await api.session(key=OPERATOR_KEY, id="mine")
        _, event, _ = await read_event(response)
    assert event["session_id"] == "mine"


async def test_a_key_that_becomes_a_viewers_works_no_more(api: Api, settings: Settings) -> None:
    session = await api.session(key=OPERATOR_KEY)
    api.agent.plays["cat"] = Play(holds=True)
    path = f"/api/sessions/{session['id']}/exec"
    headers = {"Authorization": f"Bearer {OPERATOR_KEY}", "Accept": "text/event-stream"}
    async with api.client.post(path, json={"argv": ["cat"]}, headers=headers) as response:
        await read_event(response)
        assert settings.keys_file is not None
        entries = entry("operator", OPERATOR_KEY, "viewer", 'owner = "operator"')
        settings.keys_file.write_text(entries)
        await api.plane.reload.look()
        async with asyncio.timeout(WAIT_SECONDS):
            await ended(response)
    await api.problem(403, "permission_denied", "POST", path, json={}, key=OPERATOR_KEY)
    await api.json("GET", f"/api/sessions/{session['id']}", key=OPERATOR_KEY)


async def test_metrics_are_read_by_any_key(api: Api) -> None:
    handle = (await api.session())["handle"]
    for key in (ADMIN_KEY, OPERATOR_KEY, VIEWER, METRICS):
        assert (await api.call("GET", "/metrics", key=key)).status == 200
    await api.problem(403, "permission_denied", "GET", "/metrics", key=handle)
