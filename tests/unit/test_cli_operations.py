"""Every operation of the HTTP API is reached by a command."""

import json
from pathlib import Path
from typing import Any

from paddock.cli.program import build

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
# The operations, each with the command that reaches it.
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
    "open_break_glass": "break-glass",
    "close_break_glass": "break-glass",
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
    "list_nodes": "nodes list",
    "show_node": "nodes report",
    "drain_node": "nodes drain",
    "move_session": "cluster move",
    "undrain_node": "nodes undrain",
    "forget_node": "nodes forget",
    "show_retention": "retention",
    "export_owner": "owners export",
    "erase_owner": "owners erase",
    "list_volumes": "volumes list",
    "show_volume": "volumes show",
    "create_volume": "volumes create",
    "remove_volume": "volumes remove",
    "create_snapshot": "snapshots create",
    "list_snapshots": "snapshots list",
    "show_snapshot": "snapshots show",
    "change_snapshot": "snapshots set",
    "remove_snapshot": "snapshots rm",
    "list_templates": "templates list",
    "show_template": "templates show",
    "build_template": "templates build",
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
    "fork_session": "fork",
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
    "reindex_audit": "audit reindex",
    "list_archives": "audit archives",
    "list_policies": "policies list",
    "explain_policy": "policies explain",
    "ensure_session": "sessions create",
    "show_usage": "usage",
    "readyz": "ready",
    "list_models": "models",
    "list_images": "sessions images",
    "list_tools": "tools offered",
    "list_all_tools": "tools offered",
    "list_keys": "api-keys list",
    "create_key": "api-keys create",
    "revoke_key": "api-keys revoke",
    "rotate_key": "api-keys rotate",
    "list_users": "users list",
    "revoke_user": "users revoke",
    "list_issuers": "login",
    "list_session_secrets": "secrets list",
    "set_session_secret": "secrets set",
    "remove_session_secret": "secrets remove",
    "search_memory": "memory search",
    "write_memory": "memory write",
    "show_bootstrap": "memory bootstrap",
    "read_process": "logs",
    "feed_process": "attach",
    "read_shell": "shells show",
    "read_terminal": "ptys show",
    "run_code": "code run",
    "create_code_context": "code contexts create",
    "list_code_contexts": "code contexts list",
    "restart_code_context": "code contexts restart",
    "interrupt_code_context": "code contexts interrupt",
    "remove_code_context": "code contexts remove",
    "make_directory": "files mkdir",
    "make_link": "files ln",
    "move_file": "files mv",
    "render_session": "render",
    "queue_messages": "queue",
    "read_timeline": "timeline",
    "close_port": "port",
    "show_pack": "misses",
    "count_denials": "audit denials",
}


def operations() -> set[str]:
    """The names of the document's operations."""
    document = json.loads(DOCUMENT.read_text())
    return {
        operation["operationId"]
        for path in document["paths"].values()
        for method, operation in path.items()
        if method in ("get", "post", "put", "delete", "patch", "head")
    }


# What only programs need, by why no command has it.
FOR_PROGRAMS = {
    "describe_file": "`files stat` says more",
    "read_archive": "`files get` asks for it",
    "write_archive": "`files put` sends it",
    "open_run_socket": "`send` does the same with one message",
    "listen_to_conversation": "`mcp` asks for it",
    "read_packed_file": "the session's own commands read, and tools of runs",
    "metrics": "text for a collector of measures",
    "end_conversation": "`mcp` ends its session instead",
    "healthz": "a probe's; `ready` says more",
    "redeem_sign_in": "the console's own page, which has the code in its address",
    "end_sign_in": "an issuer's, when a user has signed out there",
    "show_caller": "a gateway's, which asks nodes who a user is",
    "create_ticket": "a page's, which can send no credential with a WebSocket",
}


def test_every_operation_has_a_command() -> None:
    assert COMMANDS.keys() | FOR_PROGRAMS.keys() == operations()
    assert COMMANDS.keys().isdisjoint(FOR_PROGRAMS)


def test_the_commands_are_there() -> None:
    program: Any = build()
    for words in {*COMMANDS.values(), "api"}:
        command = program
        for word in words.split():
            assert word in command.commands, words
            command = command.commands[word]
        assert not hasattr(command, "commands"), words
