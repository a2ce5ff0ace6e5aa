"""What commands that list print: ids, JSON, or the fields that were asked for."""

import json
from pathlib import Path

import pytest

from paddock.cli.exits import Status
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
async def sessions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    await api.session(id="box-1", permission_level="high")
    await api.session(id="box-2", permission_level="low")


async def listed(*options: str) -> str:
    ended = await run_beside("sessions", "list", *options)
    assert ended.status == Status.OK, ended
    return ended.out


async def test_ids_are_one_per_line() -> None:
    assert await listed("-q") == await listed("--quiet") == "box-2\nbox-1\n"


@pytest.mark.parametrize(
    "options", [("--json",), ("--format", "json"), ("--json", "--format=json")]
)
async def test_json_has_two_names(options: tuple[str, ...]) -> None:
    items = json.loads(await listed(*options))
    assert [each["id"] for each in items] == ["box-2", "box-1"]
    assert "permission_level" in items[0]


async def test_a_table_is_the_default() -> None:
    assert (await listed("--format", "table")).split()[:2] == (await listed()).split()[:2]


async def test_fields_are_columns_in_their_order() -> None:
    lines = (await listed("--format", "permission_level, id,labels")).splitlines()
    assert [line.split() for line in lines] == [
        ["PERMISSION_LEVEL", "ID", "LABELS"],
        ["low", "box-2", "{}"],
        ["high", "box-1", "{}"],
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "id,nonsense"), "no field 'nonsense'; there are "),
        (("--format", ""), "neither table nor json nor fields"),
        (("--format", "id,"), "neither table nor json nor fields"),
        (("--format", "id", "--json"), "one of --json, --quiet and --format"),
        (("-q", "--json"), "one of --json, --quiet and --format"),
    ],
)
async def test_what_cannot_be_printed_is_a_usage_error(options: tuple[str, ...], said: str) -> None:
    ended = await run_beside("sessions", "list", *options)
    assert (ended.status, ended.out) == (Status.USAGE, "")
    assert said in ended.err
    if "nonsense" in " ".join(options):
        assert "permission_level" in ended.err


async def test_files_are_listed_by_path(api: Api) -> None:
    await run_beside("files", "put", "box-1", "-", "one.txt", stdin=b"1")
    assert (await run_beside("files", "ls", "box-1", "-q")).out == "one.txt\n"
    fields = await run_beside("files", "ls", "box-1", "--format", "size,path")
    assert [line.split() for line in fields.out.splitlines()] == [
        ["SIZE", "PATH"],
        ["1", "one.txt"],
    ]
    whole = json.loads((await run_beside("files", "ls", "box-1", "--json")).out)
    assert (len(whole["items"]), whole["truncated"]) == (1, False)


async def test_levels_contexts_keys_and_tools_are_listed_by_name(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    logged = await run_beside(
        *("login", str(api.server.make_url("/")), "--name", "work"), stdin=ADMIN_KEY.encode()
    )
    assert logged.status == Status.OK, logged
    await run_beside("keys", "create", "ci")
    for words, names in (
        (("policies", "list"), {"low", "medium", "high"}),
        (("context", "list"), {"work"}),
        (("keys", "list"), {"ci"}),
        (("tools", "list"), {"python3.calculate"}),
    ):
        plain = await run_beside(*words, "-q")
        assert (plain.status, names - set(plain.out.splitlines())) == (Status.OK, set()), words
        fields = await run_beside(*words, "--format", "name")
        assert [line.strip() for line in fields.out.splitlines()] == [
            "NAME",
            *plain.out.splitlines(),
        ], words
        items = json.loads((await run_beside(*words, "--json")).out)
        assert [each["name"] for each in items] == plain.out.splitlines(), words
