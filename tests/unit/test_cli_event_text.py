"""Events as the command line shows them."""

from paddock.cli.description import summary


def test_the_name_by_which_a_foreign_client_asked_is_behind_the_subject() -> None:
    name = "e2b POST /process.Process/Start"
    event = {"operation": "command.start", "args": {"argv": ["ls", "a b"], "asked_as": name}}
    assert summary(event) == f"ls 'a b' [{name}]"
    # However long the subject is.
    event["args"] = {"argv": ["x" * 1000], "asked_as": name}
    assert summary(event).endswith(f"… [{name}]")
    assert summary({"operation": "session.pause", "args": {"asked_as": name}}) == f"[{name}]"
    assert summary({"operation": "session.pause", "args": {"a": "b"}}) == "a=b"
