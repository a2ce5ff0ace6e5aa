"""Scopes of API keys: the operations that each of them permits.

This is the only table of them. Each operation of the API that asks for a credential has exactly
one scope. A scope permits nothing that the key's role does not.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple


class Scope(NamedTuple):
    """What a scope permits, in a few words, and the ids of its operations."""

    meaning: str
    operations: tuple[str, ...]


def _scope(meaning: str, operations: str) -> Scope:
    return Scope(meaning, tuple(operations.split()))


SCOPES: Mapping[str, Scope] = {
    "sessions:read": _scope(
        "List and inspect sessions, their settings, budgets and tools, and what the server offers.",
        "inspect_session show_budget show_settings list_sessions list_tools list_all_tools "
        "list_policies explain_policy list_images list_models show_usage show_pack "
        "list_code_contexts list_terminals list_shells",
    ),
    "sessions:create": _scope(
        "Create, fork and spawn sessions. A new session's handle may do what the key's scopes "
        "permit.",
        "create_session ensure_session fork_session spawn_session restore_session",
    ),
    "sessions:change": _scope(
        "Change, pause, resume and refine sessions, and rotate their handles.",
        "change_settings pause_session resume_session refine_session set_episode rotate_handle "
        "report_usage",
    ),
    "break-glass": _scope(
        "Open access to the content of other keys' sessions, where admins need that.",
        "open_break_glass close_break_glass",
    ),
    "sessions:end": _scope(
        "Interrupt, complete and end sessions.",
        "interrupt_session complete_session abort_session close_session",
    ),
    "exec": _scope(
        "Run commands, code, turns and terminals in sandboxes, with all that such programs can do.",
        "exec feed_process signal_process open_terminal interact close_terminal create_shell "
        "run_in_shell give_shell_input interrupt_shell close_shell run_code create_code_context "
        "restart_code_context interrupt_code_context remove_code_context run_turn send_messages "
        "queue_messages open_run_socket create_ticket open_live_terminal",
    ),
    "output:read": _scope(
        "Read what commands, terminals and turns wrote.",
        "list_processes read_process read_output read_terminal read_transcript read_recording "
        "read_shell list_turns read_turn read_timeline render_session",
    ),
    "mcp": _scope(
        "Speak MCP with a session; each tool needs its own scope as well.",
        "converse listen_to_conversation end_conversation",
    ),
    "files:read": _scope(
        "Read files of workspaces and packs.",
        "read_file list_files describe_file stat_file search_files watch_files read_archive "
        "read_packed_file",
    ),
    "files:write": _scope(
        "Write files of workspaces.",
        "write_file delete_file patch_files copy_file change_mode write_archive make_directory "
        "make_link move_file",
    ),
    "proposals": _scope(
        "See, commit and roll back staged changes.",
        "list_proposals commit_proposals rollback_proposals",
    ),
    "approve": _scope(
        "See and decide approvals.",
        "list_approvals decide_approval",
    ),
    "events:read": _scope(
        "Read events and the audit record.",
        "follow_session follow_all search_audit count_audit export_audit verify_audit "
        "search_all_audit count_denials",
    ),
    "audit:archive": _scope(
        "Archive the audit record and rebuild its index.",
        "archive_audit reindex_audit list_archives",
    ),
    "owners": _scope(
        "Show what is kept of owners, export and erase it.",
        "show_retention export_owner erase_owner",
    ),
    "users": _scope(
        "List users who have signed in, and revoke them.",
        "list_users revoke_user",
    ),
    "egress": _scope(
        "See and change what sessions may reach.",
        "show_egress list_egress_drafts change_egress add_egress_rules",
    ),
    "ports": _scope(
        "Open and close ports of sessions, and use them.",
        "list_ports open_port close_port",
    ),
    "secrets": _scope(
        "Set and remove secrets, and list their names.",
        "list_secrets set_secret remove_secret list_session_secrets set_session_secret "
        "remove_session_secret",
    ),
    "hooks": _scope(
        "Manage hooks, which receive events.",
        "list_hooks add_hook remove_hook list_hook_deliveries retry_hook_delivery",
    ),
    "memory": _scope(
        "Read and change memory.",
        "list_memory add_memory change_memory remove_memory search_memory write_memory "
        "show_bootstrap",
    ),
    "volumes": _scope(
        "Manage volumes.",
        "list_volumes show_volume create_volume remove_volume",
    ),
    "snapshots": _scope(
        "Manage snapshots.",
        "list_snapshots show_snapshot create_snapshot change_snapshot remove_snapshot "
        "take_snapshot",
    ),
    "templates": _scope(
        "See and build templates; a build runs commands.",
        "list_templates show_template build_template",
    ),
    "keys": _scope(
        "Manage API keys that have no scope beyond the caller's.",
        "list_keys create_key rotate_key revoke_key",
    ),
    "nodes": _scope(
        "See and manage the nodes of a cluster.",
        "list_nodes show_node drain_node undrain_node forget_node move_session",
    ),
    "metrics": _scope("Read the metrics.", "metrics"),
}

SCOPE_OF: Mapping[str, str] = {
    operation: name for name, scope in SCOPES.items() for operation in scope.operations
}


def check_scopes(names: Iterable[str]) -> None:
    """Raises: ValueError that names an unknown scope and the nearest known ones."""
    for name in names:
        if name in SCOPES:
            continue
        near = get_close_matches(name[:64], SCOPES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(SCOPES)}"
        raise ValueError(f"{name[:64]!r} is not a scope: {hint}")
