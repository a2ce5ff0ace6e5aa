"""A backend of deepagents where the standard tests don't look: refusals, time-outs, an agent."""

from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import paddock
from paddock import SessionTerminatedError
from paddock.integrations.deepagents import PaddockBackend


class Script(GenericFakeChatModel):
    """Gives its answers in turn, whatever tools it is told of."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def test_refusals_are_for_the_model() -> None:
    """The level is the default one, which runs no shell."""
    with paddock.session() as session:
        backend = PaddockBackend(session)
        done = backend.execute("ls")
        assert (done.exit_code, "shell-level" in done.output) == (126, True)
        sent, elsewhere = backend.upload_files([("/workspace/d/a", b"a"), ("/etc/a", b"a")])
        assert (sent.error, elsewhere.error) == (None, "permission_denied")
        found = backend.download_files(["/workspace/d/a", "/workspace/d", "/workspace/b", "a"])
        assert [(each.content, each.error) for each in found] == [
            (b"a", None),
            (None, "is_directory"),
            (None, "file_not_found"),
            (None, "invalid_path"),
        ]


def test_a_line_that_takes_too_long() -> None:
    with paddock.session(permission_level="high") as session:
        done = PaddockBackend(session, timeout=600).execute("echo begun; sleep 600", timeout=1)
    assert (done.exit_code, done.output.splitlines()[0]) == (124, "begun")


def test_an_ended_session_is_an_error() -> None:
    with paddock.session(permission_level="high") as session:
        session.close(purge=True)
        with pytest.raises(SessionTerminatedError):
            PaddockBackend(session).execute("ls")


def test_output_is_joined_in_its_order() -> None:
    with paddock.session(permission_level="high") as session:
        done = PaddockBackend(session).execute("echo 1; echo 2 >&2; echo 3; exit 4")
    assert (done.output, done.exit_code, done.truncated) == ("1\n2\n3\n", 4, False)


def test_an_agent_works_whole() -> None:
    calls = [
        {"name": "write_file", "args": {"file_path": "/workspace/a", "content": "1\n2\n"}},
        {"name": "execute", "args": {"command": "paste -sd+ a"}},
    ]
    answers = [
        AIMessage("", tool_calls=[{**call, "id": str(number)}]) for number, call in enumerate(calls)
    ]
    model = Script(messages=iter([*answers, AIMessage("done")]))
    with paddock.session(permission_level="high") as session:
        agent = create_deep_agent(model=model, backend=PaddockBackend(session))
        messages = agent.invoke({"messages": [("user", "add")]})["messages"]
    said = [each.text for each in messages if isinstance(each, ToolMessage)]
    assert messages[-1].text == "done"
    assert "1+2" in said[-1]
