"""Every operation of the HTTP API is reached by a command."""

import json
from pathlib import Path
from typing import Any

from paddock.cli.program import build

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
# What has a command of its own.
COMMANDS = {
    "create_session": "sessions create",
    "list_sessions": "sessions list",
    "inspect_session": "sessions show",
    "close_session": "sessions close",
    "pause_session": "sessions pause",
    "resume_session": "sessions resume",
    "complete_session": "sessions complete",
    "abort_session": "sessions abort",
    "interrupt_session": "sessions interrupt",
    "rotate_handle": "sessions handle",
    "set_episode": "sessions episode",
    "show_budget": "budget",
    "report_usage": "usage",
    "show_settings": "settings",
    "change_settings": "settings",
    "show_egress": "egress show",
    "list_egress_drafts": "egress drafts",
    "add_egress_rules": "egress allow",
    "change_egress": "egress deny",
    "list_secrets": "secrets list",
    "set_secret": "secrets set",
    "remove_secret": "secrets remove",
    "list_volumes": "volumes list",
    "show_volume": "volumes show",
    "create_volume": "volumes create",
    "remove_volume": "volumes remove",
    "list_memory": "memory list",
    "add_memory": "memory add",
    "change_memory": "memory edit",
    "remove_memory": "memory remove",
    "exec": "exec",
    "list_processes": "ps",
    "read_output": "output",
    "read_file": "files cat",
    "write_file": "files put",
    "delete_file": "files rm",
    "list_files": "files ls",
    "watch_files": "files watch",
    "stat_file": "files stat",
    "copy_file": "files cp",
    "change_mode": "files chmod",
    "patch_files": "files patch",
    "search_files": "files search",
    "create_shell": "shells create",
    "list_shells": "shells list",
    "run_in_shell": "shells run",
    "give_shell_input": "shells input",
    "interrupt_shell": "shells interrupt",
    "close_shell": "shells rm",
    "signal_process": "kill",
    "open_terminal": "ptys open",
    "list_terminals": "ptys list",
    "interact": "ptys send",
    "close_terminal": "ptys close",
    "read_transcript": "ptys transcript",
    "read_recording": "ptys recording",
    "open_live_terminal": "shell",
    "run_turn": "turn",
    "list_turns": "turns",
    "read_turn": "turns",
    "send_messages": "send",
    "spawn_session": "spawn",
    "list_approvals": "approvals list",
    "decide_approval": "approvals approve",
    "list_proposals": "proposals show",
    "commit_proposals": "proposals commit",
    "rollback_proposals": "proposals rollback",
    "take_snapshot": "sessions snapshot",
    "restore_session": "sessions restore",
    "open_port": "port",
    "list_ports": "ports",
    "refine_session": "refine",
    "converse": "mcp",
    "follow_session": "events",
    "follow_all": "events",
    "list_hooks": "hooks list",
    "add_hook": "hooks add",
    "remove_hook": "hooks remove",
    "list_hook_deliveries": "hooks deliveries",
    "retry_hook_delivery": "hooks retry",
    "search_all_audit": "audit search",
    "search_audit": "audit list",
    "count_audit": "audit stats",
    "export_audit": "audit export",
    "verify_audit": "audit verify",
    "archive_audit": "audit archive",
    "list_archives": "audit archives",
    "list_policies": "policies list",
    "explain_policy": "policies explain",
}


def operations() -> dict[str, dict[str, Any]]:
    """The operations of the document, by their names, each with its method."""
    document = json.loads(DOCUMENT.read_text())
    return {
        operation["operationId"]: {**operation, "method": method}
        for path in document["paths"].values()
        for method, operation in path.items()
        if method in ("get", "post", "put", "delete", "patch", "head")
    }


def answers_with_json(operation: dict[str, Any]) -> bool:
    """Whether a success is JSON or nothing, so that `paddock api` prints it."""
    content = [
        kind
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for kind in answer.get("content", {})
    ]
    return "application/json" in content or "204" in operation["responses"]


# Bytes and streams, which only programs need, by why no command has them.
FOR_PROGRAMS = {
    "describe_file": "`files stat` says more",
    "read_archive": "`files get` asks for it",
    "write_archive": "`files put` sends it",
    "open_run_socket": "`send` does the same with one message",
    "listen_to_conversation": "`mcp` asks for it",
    "read_packed_file": "the session's own commands read, and tools of runs",
    "metrics": "text for a collector of measures",
}


def test_every_operation_has_a_command() -> None:
    found = operations()
    assert COMMANDS.keys() - found.keys() == set()
    rest = {name: found[name] for name in found.keys() - COMMANDS.keys() - FOR_PROGRAMS.keys()}
    # `paddock api` sends any of its methods, and prints JSON.
    unreached = [
        name
        for name, each in rest.items()
        if each["method"] not in ("get", "post", "put", "delete") or not answers_with_json(each)
    ]
    assert unreached == []


def test_the_commands_are_there() -> None:
    program: Any = build()
    for words in {*COMMANDS.values(), "api"}:
        command = program
        for word in words.split():
            assert word in command.commands, words
            command = command.commands[word]
        assert not hasattr(command, "commands"), words
