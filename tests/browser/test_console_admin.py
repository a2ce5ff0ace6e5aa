"""The console's pages for admins, with a real browser and a control plane without containers."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, expect

from orchestrator.ground.errors import PaddockError
from orchestrator.host.node.base import Gauged, Load
from orchestrator.host.node.processes import Usage
from orchestrator.operate.hooks import hook_deliveries
from orchestrator.operate.hooks.hook_rules import WantedHook
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.requests import ExecRequest
from orchestrator.work.approvals.approvals import Line
from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console, opened
from tests.support.fake_agent import Play
from tests.support.receiver import ERROR, OK, receiving
from tests.support.served_plane import KEY, ServedPlane, served_plane
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = ("sessions", "approvals", "audit", "policies", "volumes", "keys", "system")
GIB = 2**30
# More than any page has of links, buttons and fields; a page of events has a hundred.
MOST_STOPS = 300
# Notes that the focus was on no element when a key was pressed.
TELL_WHEN_LEFT = """() => {
  window.left = false;
  addEventListener("keydown", () => { window.left ||= document.activeElement === document.body; });
}"""
RECORDING = "\n".join(
    (
        '{"version": 2}',
        json.dumps([0.1, "o", "\x1b[31m>>> \x1b[0m"]),
        json.dumps([0.2, "i", "1\n"]),
        json.dumps([0.3, "o", "1\r\n\x1b]0;a title\x07done"]),
        '[0.4, "o", "cut o',
    )
)
METRICS = '# HELP x\nx_total{a="b,\\"c",d="e"} 1.5\ny 2\n'
# Of modules of the pages: what a call returns.
COMPUTED: tuple[tuple[str, str, Any], ...] = (
    ("pages/approvals_screen", f"found.shown({json.dumps(RECORDING)})", ">>> 1\ndone"),
    ("charts", "found.linePath([0, null, 10, 5], 10)", "M94.9 23.0M98.3 1.0L100.0 12.0"),
    (
        "pages/keys",
        "found.newKey({name: 'a', role: 'operator', level: '', expires: '30 days', "
        "max_cpus: '1.5', max_memory_bytes: '0.5', images: 'a, b'}, 0)",
        {
            "name": "a",
            "role": "operator",
            "expires_at": "1970-01-31T00:00:00.000Z",
            "max_cpus": 1.5,
            "max_memory_bytes": 2**29,
            "images": ["a", "b"],
        },
    ),
    (
        "pages/keys",
        "found.newKey({name: 'v', role: 'viewer', expires: 'never', max_cpus: '2'})",
        {"name": "v", "role": "viewer", "scope": "all"},
    ),
    (
        "pages/system_metrics",
        f"[...found.parsed({json.dumps(METRICS)})]",
        [
            ["x_total", [{"labels": {"a": 'b,\\"c', "d": "e"}, "value": 1.5}]],
            ["y", [{"labels": {}, "value": 2}]],
        ],
    ),
)
# Remembers the rows that change; times change by themselves.
WATCH = """() => {
  globalThis.changed = new Set();
  const row = (node) => node.closest?.("tr") ?? node.parentElement?.closest("tr");
  const watch = new MutationObserver((records) => {
    for (const {target} of records) {
      const element = target.nodeType === 3 ? target.parentElement : target;
      if (element?.tagName !== "TIME") changed.add(row(target)?.querySelector("a").textContent);
    }
  });
  watch.observe(document.querySelector(".sessions tbody"),
    {subtree: true, childList: true, characterData: true, attributes: true});
}"""
NOTIFIED = """() => {
  globalThis.notes = [];
  Object.defineProperty(document, "hidden", {get: () => true});
  globalThis.Notification = class { constructor(title, {body}) { notes.push(body); } };
  Notification.permission = "granted";
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def admin(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


async def refused(served: ServedPlane, session: Any, *argv: str) -> None:
    request = ExecRequest(argv=list(argv))
    with pytest.raises(PaddockError):
        await served.plane.executions.start(TESTER, session, request)


async def status(served: ServedPlane, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{served.address}api/sessions"
    async with ClientSession() as client, client.get(url, headers=headers) as response:
        return response.status


async def test_a_hundred_sessions_are_sorted_filtered_and_drawn_only_where_they_change(
    admin: Console, served: ServedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = admin.page
    sessions = await asyncio.gather(
        *(served.session(id=f"many-{n:03}", labels={"team": f"t{n % 4}"}) for n in range(100))
    )
    rows = page.locator(".sessions tbody tr")
    await expect(rows).to_have_count(100, timeout=PATIENCE_MS)

    async def gauge(containers: dict[str, int | None]) -> Gauged:
        """The later a session was created, the more it uses."""
        order = {one.sandbox.container_id: at for at, one in enumerate(sessions) if one.sandbox}
        load = Load({"user": 1.0, "idle": 3.0}, 2, 4 * GIB, GIB, 8 * GIB, GIB)
        uses = {one: Usage(0.0, 0.0, (order[one] + 1) * 2**20, 2) for one in containers}
        return Gauged(0.0, load, uses)

    monkeypatch.setattr(served.plane.usage._node, "gauge", gauge)
    await served.plane.usage.sample()
    await admin.reload()
    await page.get_by_role("button", name="Memory").click(timeout=PATIENCE_MS)
    await expect(rows.first).to_contain_text("100 MiB", timeout=PATIENCE_MS)
    await expect(rows.last).to_contain_text("many-000")
    await page.get_by_label("Filter").fill("team:t3")
    await expect(rows).to_have_count(25)
    assert "by=memory" in page.url
    await page.get_by_label("Filter").fill("")
    await expect(rows).to_have_count(100)

    await page.evaluate(WATCH)
    served.agents.plays["tail"] = Play(holds=True)
    request = ExecRequest(argv=["tail", "-f", "log"], background=True)
    await served.plane.executions.start(TESTER, sessions[7], request)
    row = rows.filter(has_text="many-007")
    await expect(row).to_contain_text("1 command", timeout=PATIENCE_MS)
    assert await page.evaluate("[...changed]") == ["many-007"]
    close = served.plane.sessions.close
    await asyncio.gather(*(close(TESTER, session, purge=False) for session in sessions))
    await expect(page.locator(".sessions")).to_have_count(0, timeout=PATIENCE_MS)


async def test_what_was_denied_most_leads_to_its_events(
    admin: Console, served: ServedPlane
) -> None:
    session = await served.session(id="denied")
    for argv in (["gcc", HOSTILE], ["gcc", "b.c"], ["cat", "/etc/shadow"]):
        await refused(served, session, *argv)
    panel = admin.page.get_by_role("region", name="denied most")
    mine = panel.get_by_role("listitem").filter(has_text="denied")
    await expect(mine.first).to_contain_text("2", timeout=PATIENCE_MS)
    await mine.first.get_by_role("link", name="command-allowlist").click()
    await expect(admin.page.locator("li.event")).to_have_count(2, timeout=PATIENCE_MS)
    async with admin.page.expect_download() as waiting:
        await admin.page.get_by_role("button", name="Save all as JSON lines").click()
    lines = (await (await waiting.value).path()).read_text().splitlines()
    assert {json.loads(line)["rule"] for line in lines} == {"command-allowlist"}
    assert any(HOSTILE in json.loads(line)["args"]["argv"] for line in lines)


async def test_a_key_is_created_shown_once_and_revoked(admin: Console, served: ServedPlane) -> None:
    page = admin.page
    await admin.go("keys")
    await page.get_by_label("Name").fill("ci", timeout=PATIENCE_MS)
    await page.get_by_label("Highest level").select_option("medium")
    await page.get_by_text("Quotas, images and tools").click()
    await page.get_by_label("Live sessions").fill("8")
    await page.get_by_label("Memory together, GiB").fill("1.5")
    await page.get_by_role("button", name="Create key").click()
    key = await page.get_by_label("the new key").input_value(timeout=PATIENCE_MS)
    assert await status(served, key) == 200
    entry = served.plane.keys.named("ci")
    assert entry is not None
    assert (entry.limits.max_sessions, entry.limits.max_memory_bytes) == (8, 1.5 * GIB)
    assert entry.bounds.max_level == "medium"
    await page.get_by_role("button", name="I have it").click()
    assert key not in await page.content()
    admin.expected += ("409",)
    await page.get_by_role("button", name="Create key").click()
    await admin.shows("is taken")
    await page.get_by_role("button", name="Revoke ci").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("button", name="Revoke ci")).to_have_count(0)
    assert await status(served, key) == 401


async def test_a_line_is_denied_by_keyboard_with_a_reason(
    admin: Console, served: ServedPlane
) -> None:
    page = admin.page
    await page.evaluate(NOTIFIED)
    session = await served.session(id="asks", permission_level="high")
    line = Line("", "psql.drop_table", f"DROP TABLE {HOSTILE}", "high")
    asked = await served.plane.approvals.obtain(session, line, "handle:asks", 0)
    count = page.get_by_role("navigation", name="Pages")
    await expect(count).to_contain_text("1", timeout=PATIENCE_MS)
    assert await page.evaluate("notes") == ["1 waiting for approval"]
    await page.get_by_role("link", name="psql.drop_table").click()
    card = page.get_by_label("approval of psql.drop_table", exact=True)
    await expect(card).to_be_focused(timeout=PATIENCE_MS)
    await expect(card).to_contain_text("DROP TABLE <img src=x onerror=document.title=1>U+202Etxt")
    await expect(card).to_contain_text("1 character that can't be seen")
    # The pattern of the command in its manifest.
    await expect(card).to_contain_text("^DROP TABLE", timeout=PATIENCE_MS)
    await page.keyboard.press("Tab")
    for _ in range(5):
        if await page.evaluate("document.activeElement.tagName") == "INPUT":
            break
        await page.keyboard.press("Tab")
    await page.keyboard.type("still in use")
    await card.focus()
    await page.keyboard.press("d")
    await admin.shows("Nothing waits")
    await admin.shows("still in use")
    decided = await served.plane.approvals.list(TESTER, session_key=session.key)
    assert [(each.id, each.status, each.reason) for each in decided[0]] == [
        (asked.id, "denied", "still in use")
    ]


async def test_policies_and_the_system_have_addresses(admin: Console, served: ServedPlane) -> None:
    page = admin.page
    await admin.go("policies?level=low&command=ls")
    # Another address of the page that is shown.
    await admin.go("policies?level=low&path=..%2Fetc%2Fpasswd")
    await page.get_by_role("button", name="Explain").click(timeout=PATIENCE_MS)
    await expect(page.get_by_label("the verdict")).to_contain_text("Denied", timeout=PATIENCE_MS)
    await page.get_by_label("Permitted at").select_option("low")
    tool = page.locator("details.manifest").filter(has_text="psql")
    await expect(tool).to_contain_text("of 10 commands permitted", timeout=PATIENCE_MS)
    await tool.locator("summary").click()
    await expect(tool).to_contain_text("asks a person")
    served.settings.keys_path.write_text("broken")
    await served.plane.reload.look()
    await admin.go("system")
    await admin.shows("the ledger can be written")
    await expect(page.get_by_role("region", name="reloads")).to_contain_text(
        "not in force", timeout=PATIENCE_MS
    )
    await expect(page.locator(".plot canvas").first).to_be_visible(timeout=PATIENCE_MS)
    served.settings.keys_path.write_text("")
    await served.plane.reload.look()


async def test_messages_that_were_given_up_are_sent_again(
    admin: Console, served: ServedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_deliveries, "MOST_TRIES", 1)
    page = admin.page
    async with receiving() as receiver:
        receiver.answer = lambda _: ERROR
        wanted = WantedHook(receiver.url, ("session.closed",), None, None)
        hook = await served.plane.hooks.add(TESTER, wanted)
        session = await served.session(id="told-of")
        await served.plane.sessions.close(TESTER, session, purge=False)
        await until(lambda: served.plane.hooks.total().undelivered == 1)
        await admin.go("system")
        hooks = page.get_by_role("region", name="hooks")
        await expect(hooks).to_contain_text(hook.id, timeout=PATIENCE_MS)
        await page.get_by_label(f"Show undelivered messages to {hook.id}").click()
        messages = page.get_by_role("region", name="undelivered messages")
        await expect(messages).to_contain_text("told-of", timeout=PATIENCE_MS)
        await expect(messages).to_contain_text("status 500")
        receiver.answer = lambda _: OK
        await page.get_by_role("button", name="Send dlv-").click()
        await admin.shows("Every message is delivered, or tried again.")
        await until(lambda: len(receiver.requests) == 2)
        first, second = receiver.requests
        assert first.json == second.json
    await served.plane.hooks.remove(TESTER, hook.id)


async def test_a_page_goes_on_after_the_control_plane_has_started_again(
    browser: Browser,
) -> None:
    async with served_plane() as served, opened(browser, served.address) as console:
        console.expected += ("ERR_", "Failed to load")
        await console.sign_in(KEY)
        session = await served.session(id="stays")
        await console.shows("stays")
        await served.stop()
        await expect(console.page.get_by_text("reconnecting", exact=True)).to_be_visible(
            timeout=PATIENCE_MS
        )
        await console.shows("stays")
        await expect(console.page.locator(".stale")).to_contain_text("may be old")
        await served.restart()
        live = console.page.get_by_text("live", exact=True)
        await expect(live).to_be_visible(timeout=PATIENCE_MS)
        await expect(console.page.locator(".stale")).to_have_count(0)
        await served.session(id="after")
        await console.shows("after")
        again = served.plane.sessions.finder.find(TESTER, session.id)
        await served.plane.sessions.close(TESTER, again, purge=False)
        ended = console.page.get_by_role("region", name="ended sessions")
        await expect(ended).to_contain_text("stays", timeout=PATIENCE_MS)


async def test_who_is_no_admin_is_told_so(browser: Browser, served: ServedPlane) -> None:
    key = await served.plane.key_edits.create("test", Principal("only", Role.OPERATOR))
    async with opened(browser, served.address) as console:
        console.expected += ("403",)
        await console.page.get_by_label("API key").fill(key)
        await console.page.keyboard.press("Enter")
        await console.shows("Live sessions")
        await console.go("keys")
        await console.shows("this needs an admin's key")
        # Its stream of events is cut.
        console.expected += ("401", "ERR_INCOMPLETE_CHUNKED_ENCODING")
        await served.plane.key_edits.revoke("test", "only")
        state = console.page.get_by_text("disconnected", exact=True)
        await expect(state).to_be_visible(timeout=PATIENCE_MS)


async def test_every_page_is_left_by_keyboard_and_what_it_computes_is_right(
    admin: Console,
) -> None:
    page = admin.page
    await admin.reload()
    await expect(page.locator("h1")).to_be_visible(timeout=PATIENCE_MS)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    for place in PAGES:
        await admin.go(place)
        await expect(page.locator("h1")).to_be_visible(timeout=PATIENCE_MS)
        await page.evaluate(TELL_WHEN_LEFT)
        for _ in range(MOST_STOPS // 20):
            for _ in range(20):
                await page.keyboard.press("Tab")
            if await page.evaluate("window.left"):
                break
        else:
            raise AssertionError(f"the keyboard does not leave {place}")
    for module, call, expected in COMPUTED:
        source = f"import('/console/{module}.js').then((found) => {call})"
        assert await page.evaluate(source) == expected


async def test_every_page_can_be_used_by_everybody_in_both_themes_and_on_a_phone(
    browser: Browser, served: ServedPlane
) -> None:
    session = await served.session(id="seen")
    await refused(served, session, "cat", "../x")
    line = Line("", "psql.drop_table", f"DROP TABLE {HOSTILE}", "high")
    await served.plane.approvals.obtain(session, line, "handle:seen", 0)
    await served.plane.usage.sample()
    async with opened(browser, served.address) as console:
        found = {"sign-in": await violations(console.page)}
        await console.sign_in(KEY)
        for place in (*PAGES, f"sessions/{session.id}/activity", f"sessions/{session.id}/raw"):
            await console.go(place)
            await expect(console.page.locator("h1")).to_be_visible(timeout=PATIENCE_MS)
            loading = console.page.get_by_text("Loading")
            await expect(loading).to_have_count(0, timeout=PATIENCE_MS)
            found[place] = await violations(console.page)
            await console.page.set_viewport_size({"width": 360, "height": 740})
            # A plot is drawn anew when the browser tells it of the new size.
            await console.page.wait_for_function("document.documentElement.scrollWidth === 360")
            await console.page.set_viewport_size({"width": 1280, "height": 720})
    assert {place: each for place, each in found.items() if each} == {}
