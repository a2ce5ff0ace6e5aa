"""The tools of an app's sandbox, at the lowest level of a real one."""

from paddock import Paddock
from paddock.app import App
from tests.support.apps import ScriptedModel, calls
from tests.support.server import leaving_nothing


async def test_the_lowest_level_permits_every_tool_of_the_sandbox() -> None:
    model = ScriptedModel(
        calls(("write_file", {"path": "src/a.txt", "text": "one\n-two\n"})),
        calls(
            ("search_files", {"text": "-two"}),
            ("search_files", {"text": "absent"}),
            ("list_files", {"depth": 2}),
            ("exec", {"command": "cat src/a.txt"}),
            ("exec", {"argv": ["python3", "-c", "1"]}),
        ),
    )
    async with (
        leaving_nothing() as server,
        Paddock(server.url, server.key) as paddock,
        App(paddock, model=model, level="low") as app,
    ):
        assert (await app.run("Work.")).text == "done"
    _, found, nothing, listed, ran, refused = (
        text for role, text in model.said() if role == "tool"
    )
    assert found == "./src/a.txt:2:-two\n"
    assert nothing == "[nothing]"
    assert listed == "src/\nsrc/a.txt"
    assert "one\\n-two\\n" in ran
    assert refused.startswith("error: ")
