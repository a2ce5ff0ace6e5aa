"""What to do instead, by rule; every rule that an answer may name is here."""

from paddock.contract.words import MAX_LINE

_OTHER_KEY = "or a key whose entry in the keys file allows it."
# How to be allowed, or an alternative.
COMMANDS = {
    "shell-operators": "At a level that allows any command, give the line as `shell`. The others "
    "run no shell: pass the words in argv, one command at a time.",
    "command-allowlist": "Use one of the allowed commands by its bare name, or a session at a "
    "higher permission level; an operator allows it in `commands` of the level's file.",
    "option-not-allowed": "Leave the option out, or spell it out as the command's manual does; "
    "a session at a level that allows any command takes every option.",
    "operand-not-allowed": "Run the command without that operand.",
    "url-not-allowed": "Begin the URL with http:// or https://.",
    "path-outside-workspace": "Use a path in the workspace: relative, or under the session's "
    "`workspace_path`.",
    "write-outside-workspace": "Write to the workspace (relative, or under the session's "
    "`workspace_path`), to /tmp "
    "or to a writable mount of the session.",
    "environment-allowlist": "Leave the variable out, or use a session at a level that allows it; "
    "an operator allows it in `environment` of the level's file.",
    "shell-level": "Use a session at a level that allows any command, or run single commands.",
    "file-permissions": "Change the file's permissions, or remove and rewrite it: it "
    "is opened as the session's own user.",
}
TOOLS = {
    "memory-level": "Use a session at a higher level: medium may search the memory, high may write "
    "to it. A host writes with its key.",
    "unknown-tool": "Use one of the tools that the session lists.",
    "command-type": "Send the line as text.",
    "too-long": f"Send at most {MAX_LINE} characters at a time, or what the message allows.",
    "control-character": "Leave the character out; the line terminator is added automatically.",
    "input-sanitize": "Leave out the characters that the message names.",
    "pattern": "Send a line that the tool's pattern matches completely.",
    "statement": "Send one simple statement that does only what its command declares.",
    "scope": "Name a target that is in the operator's scope file.",
    "argument": "Use a value of the argument's type.",
    "risk-tier": "Use a session at a level that allows the command's risk tier.",
    "cedar": "Ask the operator for a policy that permits it.",
    "human-approval": "Send exactly the same line again after approval, or wait for the approval.",
    "other-approver": "Let people approve who neither own, changed nor used the session.",
    "session-tools": "Create the session with the tool among its `tools`, or without them.",
    "allow-ptrace": "Use a level whose file sets `confinement.ptrace`.",
    "mount": "Create the session with the mount; an operator lists it in `PADDOCK_MOUNTS`.",
    "workspace-path": "Create the session with another `workspace_path`, or with none.",
    "tool-url": "Register a URL below one of the operator's `PADDOCK_TOOL_URLS`.",
    "max-interactions": "Open another terminal.",
}
KEYS = {
    "key-max-level": f"Use a level that is not higher than the key's `max_level`, {_OTHER_KEY}",
    "key-images": f"Use one of the key's `images`, which the message lists, {_OTHER_KEY}",
    "key-scope": f"Use a key with the scope that the message names, {_OTHER_KEY}",
    "break-glass": "Open an access with `paddock break-glass`, or let the owner do it.",
    "key-tools": f"Use one of the key's `tools`, {_OTHER_KEY}",
    "admin-widens": "Have an admin allow it: `paddock egress allow`, or `also` in `PUT …/egress`.",
}
PACKS = {
    "CTX-ALLOWLIST-001": "Refine the context pack so that it has the path.",
    "CTX-HASH-MISMATCH-001": "State the hash that the context pack has, or refine the pack.",
    "CTX-TOCTOU-001": "Restore the file's content, or refine the context pack with its new hash.",
    "CTX-HASH-REQUIRED-001": "State the file's `hash` in the request.",
    "CTX-PATH-001": "Use a path in the workspace: relative, or under /workspace.",
    "CTX-TOOL-001": "Use a context pack whose `tool_allowlist` has the class of what is done.",
    "CTX-WRITE-001": "Write to a path of the context pack's `write_allowlist`, or to /tmp.",
    "CTX-SHELL-001": "Run a command of the context pack's `shell_allowlist`.",
}
_OTHER_POLICY = "create the session with a policy that"
POLICIES = {
    "policy-operation": f"Use an allowed operation, or {_OTHER_POLICY} allows it.",
    "policy-denied": f"Use another operation, or {_OTHER_POLICY} does not deny it.",
    "policy-read": f"Name another path, or {_OTHER_POLICY} has it in `read_patterns`.",
    "policy-write": f"Name another path, or {_OTHER_POLICY} has it in `write_patterns`.",
    "policy-read-only": f"Only read, or {_OTHER_POLICY} has `read_only = false`.",
    "policy-tokens": f"Ask for fewer tokens, or {_OTHER_POLICY} has more in `max_tokens_per_call`.",
    "policy-llm": f"Do without it, or {_OTHER_POLICY} allows it in `llm_rules`.",
    "policy-execution": f"Do without it, or {_OTHER_POLICY} allows it in `execution_rules`.",
}
SPAWNS = {
    "parent-level": "Spawn the child at its parent's level, or at a lower one.",
    "parent-policy": "Leave the policy out: the child has its parent's then.",
}
PAGES = {
    "foreign-origin": "Use the console of this control plane, or a program instead of a page; the "
    "operator can add a page's origin to `PADDOCK_CORS_ORIGINS`; a reverse proxy must pass on the "
    "client's `Host`.",
}
# Of the rule `shell-operators`, by whether the session's level permits a shell.
_OPERATORS = {
    True: "Give the line as `shell`: this level permits one.",
    False: "Pass the words in argv, one command at a time: this level runs no shell.",
}


def shell_remedy(rule: str, *, permitted: bool) -> str | None:
    """What to do instead of operators where a shell is `permitted` or not; None: another rule."""
    return _OPERATORS[permitted] if rule == "shell-operators" else None


REMEDIES = COMMANDS | TOOLS | KEYS | PACKS | POLICIES | SPAWNS | PAGES
