"""The protocol between the control plane and a sandbox agent.

JSON-RPC 2.0 in frames: a 4-byte big-endian length, then that many bytes of UTF-8 JSON. The control
plane listens on a UNIX socket in the sandbox's run directory, and the agent dials it. Bytes are
encoded as base64, except in `file.pull` and `file.push`: their `data` follows the JSON of a frame
that begins with a NUL and the 4-byte length of the JSON.

Host → agent, requests
    prepare {commands} → {}: the commands that its session may run; before configure, any number of
              times
    configure {level, uid, …: the members of Configuration} → {}
              sent once; before it, the agent refuses every request but prepare. A configuration
              that is malformed, or that the agent can't enforce, ends the agent
    exec      {command_id, argv, cwd, env, secrets, stdin, stdin_open, timeout_ms, background,
              collect, unread, held, merge, output_file} → {}
              answered when the command is ready; it ends with a `command.exit` event. `held`: the
              command waits for `go`. If the connection is lost before, the command is dropped:
              nothing runs before its start is on record
              `collect`: that event includes the output if it is short; `unread`: the output is
              kept for its reader, as for a command in the foreground; `merge`: stderr is the same
              pipe as stdout; `output_file`: a file of the workspace, relative to it, that both
              streams go to instead; null: none
    output    {command_id, after, limit, wait_ms, looks, whole, times} → {chunks: [[stream, offset,
              data]], next, ended}  `looks`: the reader is not the command's caller, for whom output
              is kept; `whole`: include the stored part of long output; `times`: each chunk has a
              fourth member, when its first byte was read, in seconds since the epoch or null
    output.restore {command_id, total, chunks: [[stream, data]]} → {stored}
              more output of a command of an earlier sandbox, `total` bytes in all
    stdin     {command_id, data, close} → {}         answered when there was room for it
    signal    {command_id, signal} → {}
    cancel    {command_id, reason} → {}              TERM, then KILL after 2 s
    pty.open  {terminal_id, argv, env, needs: {execute, read, write, writable_code, ptrace}, rows,
               cols, terminator, sanitize, commands, max_line_bytes, lifetime_ms, idle_ms} → {}
              starts a program on its own terminal, confined as commands are except for what it
              `needs`; it ends with a `pty.exit` event. `commands`: the names under which lines are
              sent; null: any bytes may be written, as to a shell. Only for levels that allow any
              command; it has the variables of commands, the session's secrets included. `kept`:
              the shell runs the commands of `pty.run`, and begins in the directory `cwd`; true: it
              is bash, "sh": any POSIX shell
    pty.send  {terminal_id, command, text, files: {path: data}} → {mark}  sends one line, checked
              and terminated; `mark`: how many bytes the program had printed before. `files`:
              copies that exist until the next line or the end, and that nothing in the sandbox can
              change
    pty.write {terminal_id, data} → {}  writes bytes as they are, if it has no `commands`; answered
              when the kernel has taken them all, or `busy` if the program does not read
    pty.run   {terminal_id, number, text} → {}  runs a command in a kept shell, one at a time; the
              random `number` names it. `pty.read` then answers with `run` too, and `waits` says
              whether a program of its foreground waits for input
    pty.interrupt {terminal_id, number, kill} → {reached}  SIGINT to the foreground of that run;
              `kill`: KILL, if that is not the shell itself
    pty.resize {terminal_id, rows, cols} → {}        if it has no `commands`
    pty.read  {terminal_id, after, limit, wait_ms} → {data, next, waits, line_bytes, ended: null |
              {exit_code, signal, reason}}  lossless: bytes before `after` count as received. When
              too many bytes are held, the terminal is not read and the program waits. `waits`:
              nothing is left to read and the program waits for input; `line_bytes`: the longest
              line that may be sent. A kept shell's answer has `run`: {number, syntax_error, ended:
              null | {exit_code, cwd, at}} of the latest run; `at`: where its output ends. Run 0 is
              the shell's start
    pty.signal {terminal_id, signal} → {}
    pty.close {terminal_id, reason} → {}             HUP and TERM, then KILL after 2 s
    file.open {op: read|write|append, path, permissions, modified, parents, links, range, match,
              none_match} → {stream, size, permissions, modified, links, version, start, length}
              `range`: [first, last], of bytes, as in HTTP; the answer has `start` and `length`.
              `version`: an entity tag; `match`, `none_match`: lists of them, or of `*`, that must
              hold for a file that is replaced (precondition_failed)
              `permissions`: the nine permission bits of a written file; null: those of the existing
              file, or else 0644; the answer has those of a file that is read. `modified`: the
              time of its last change in seconds since the epoch; null: now. `parents`: the commit
              creates missing directories. `links` false: a path through a symbolic link is
              not read; the answer repeats the value. Paths are relative to the workspace; absolute
              paths lie outside it and are only for levels that allow any command
    file.open {op: pack|unpack, path, format: tar|zip, most_bytes} → {stream, summary}
              the tree beneath a directory as one stream. The summary is {files, directories, links,
              bytes, paths_words, paths_sha256}: the last two are the number and digest of the
              paths. It also has {skipped, skipped_names}: the entries that are left out
    file.pull {stream, limit} → {data}     no data at the end
    file.push {stream, data} → {}
              up to MOST_AHEAD requests of a stream may be under way; they are handled in order
    file.close {stream, commit} → {bytes, version, summary, more}
              `more`: an archive is not unpacked completely yet, and this request must be repeated
    file.open {op: watch, path, recursive} → {stream}
              the changes below a directory from now on, which `file.changes` asks for
    file.changes {stream, limit, wait_ms} → {changes: [{kind, path, directory, source}], ended}
              answered when there is one, or after `wait_ms`. `kind`: create, write, delete, move
              from `source`, attributes; overflow: some are missing, so the tree must be read anew
    file.list {path, depth, limit, glob} → {entries: [Entry as object], truncated}
              `glob`: only what matches; a pattern without a slash is about names
    file.stat {path} → Entry as object
    file.search {path, text, regex, ignore_case, globs, limit} → {matches: [{path, line, text}],
              files, skipped, truncated}  the lines of files that have the text, or match it
    file.patch {patch, names: {name: path}, dry_run} → {patched: [{path, action, hunks, from}],
              rejects: [{path, hunk, header, reason}]}  nothing is done if something is rejected
    file.copy {source, destination, most_bytes, parents} → {copied: {files, directories, links,
              bytes, skipped}}
    file.chmod {path, permissions} → {}
    file.digest {paths} → {digests: [64 hex digits or null]}
              the sha256 of the first of these files, at least one; null: there is no regular file,
              or a link leads to it. This request is not recorded
    file.mkdir {path} → {}    file.move {source, destination} → {}
    file.delete {path, recursive, match, none_match} → {removed}
    file.symlink {path, target} → {}
    secrets   {variables: {NAME: [value, seal]}, given: [[value, seal]]} → {}
              replaces the secrets that commands get as variables, and those that were ever given
              to a single command; all of them are cut out of events and errors
    programs  {names} → {absent: [name]}
              those that are no executable files of the image, by bare name or absolute path
    vouch     {until_ms} → {now_ms}   until when the session may run, by the agent's CLOCK_BOOTTIME;
              null, or absent: only asks for that clock. From the first such word on, the session
              stands still when no other one has come in time: its processes are stopped, and the
              agent's timers wait. A word lets it go on
    ports     {} → {}      starts the process that connects to ports of the sandbox, unless it runs
    stats     {} → {running, terminals, finished, buffered_events, uptime_ms}
    shutdown  {reason, at_once} → {}    ends every command and terminal (with `at_once` by KILL
                                        alone), and waits until their events are acknowledged
Host → agent, notifications
    ack       {seq}            every event up to and including seq is durable
    go        {command_id}     starts a command that waits for it
    drop      {command_id}     the command never starts
Agent → host
    hello (request)  {protocol, boot_id, configured, running, finished, terminals, landlock_abi,
                      seccomp, undisturbed, mdwe, compiled_guard, session_cpu_us,
                      session_output_bytes, secrets}
                     → {committed_seq}
                     `landlock_abi` to `mdwe` are its kernel's facilities; an agent
                     that is not configured sends no session_cpu_us and session_output_bytes
    event (notification)  {boot_id, seq, operation, time, decision, rule, command_id, args, result,
                           error, duration_ms, output}
    stopping (notification)  {}   it ends a command or terminal: a process that waits for the disk
                             can't end, so whatever holds the disk must let it go

`secrets` in hello are the secrets that the agent holds, in the form of the `secrets` request. In
exec they are {NAME: [value, seal]}. Only the control plane uses seals; the agent stores them.
`output` in a `command.exit` is [[stream, offset, data]], all the kept output. It is sent only once:
a replayed event omits it, and the control plane then requests it, as it requests longer output.
`session_cpu_us` and `session_output_bytes`, also in the results of `command.exit` and `pty.exit`,
are the totals of the session so far, earlier sandboxes included. `budget.exceeded` has the args
{kind, limit, consumed}, and precedes the end events of what it stopped.
"""

from typing import Any, NamedTuple

from sandbox_agent.decide.manifest import Consume

PROTOCOL_VERSION = 12
# No frame needs to be larger: bulk data is sent in chunks of CHUNK_BYTES.
MAX_FRAME_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
# The most requests of one file stream that may be under way at once.
MOST_AHEAD = 4
# Copies of the files that a terminal's line names: this prefix, 16 hex digits, / and a name.
KEPT_PREFIX = "/tmp/.kept-"  # noqa: S108 - the agent owns the directories
# The most chunks of output in one answer: messages with more values are not read.
MOST_CHUNKS = 4096
# The most output in a command's exit event.
MOST_EVENT_OUTPUT_BYTES = 64 * 1024
MOST_EVENT_OUTPUT_CHUNKS = 256
# The number of commands per sandbox whose long output is stored.
MOST_STORED = 64
SOCKET_NAME = "control.sock"
# The host name of every sandbox. In a sandbox without a network, it leads to the loopback.
HOST_NAME = "sandbox"
RUN_DIR = "/run/paddock"
# The way out: the socket of the proxy on the host, for the forwarder's user only, and the port at
# which the forwarder listens inside the sandbox. The uid is below those of all workspaces.
EGRESS_SOCKET_NAME = "egress.sock"
EGRESS_DIR = "/run/paddock-egress"
EGRESS_PORT = 3128
# Only where TLS is inspected: the certificate of the proxy's authority, and a bundle with it.
CA_DIR = "/run/paddock-ca"
CA_NAME, CA_BUNDLE_NAME = "ca.pem", "bundle.pem"
FORWARDER_UID = 990
# The way in: the control plane's socket, for the user of the ports' process only. That process
# keeps connections ready on it. The control plane sends two bytes on one, a port in network order,
# and receives one: PORT_CONNECTED or PORT_REFUSED. After PORT_CONNECTED, the bytes are the port's.
PORTS_SOCKET_NAME = "ports.sock"
PORTS_DIR = "/run/paddock-ports"
PORTS_UID = 991
PORT_CONNECTED = b"\0"
PORT_REFUSED = b"\1"
# Where the control plane answers the `session` program, for the session's user only. A question is
# a line of JSON, a list of words. So is the answer, an object with `exit_code`, `stdout`, `stderr`.
QUESTIONS_SOCKET_NAME = "questions.sock"
QUESTIONS_DIR = "/run/paddock-session"
# Where a session's workspace is, unless its configuration says otherwise.
WORKSPACE_DIR = "/workspace"

# The events that an agent may report; the control plane refuses any other.
AGENT_OPERATIONS = frozenset(
    {
        "command.exec",
        "command.exit",
        "budget.exceeded",
        "file.read",
        "file.write",
        "file.list",
        "file.delete",
        "file.mkdir",
        "file.move",
        "file.symlink",
        "file.pack",
        "file.unpack",
        "file.stat",
        "file.search",
        "file.patch",
        "file.copy",
        "file.chmod",
        "file.watch",
        "pty.exit",
        "read",
    }
)

# The members of an event's `args` and `result`. These names are never cut out, even if they contain
# the value of a secret.
_EVENT_MEMBERS = (
    *("command_id", "terminal_id", "path", "real_path", "by", "argv", "argv_partly", "repeats"),
    *("mode", "depth", "limit", "source", "destination", "target", "entries", "bytes"),
    *("format", "files", "directories", "links", "paths", "skipped"),
    *("recursive", "removed", "text", "regex", "glob", "matches", "hunks", "rejects"),
    *("permissions", "range"),
    *("kind", "consumed", "exit_code", "signal", "timed_out", "reason", "truncated", "cut_bytes"),
    *("stored_bytes", "output_bytes", "leftover_killed", "duration_us", "cpu_us"),
    *("max_rss_bytes", "session_cpu_us", "session_output_bytes"),
    *("manifest_id", "syscall", "program", "pid"),
)
# A value that was shortened comes with its measures.
EVENT_MEMBERS = frozenset(_EVENT_MEMBERS) | {
    f"{name}_{measure}" for name in _EVENT_MEMBERS for measure in ("bytes", "words", "sha256")
}

# The budget kinds that the agent watches: CPU time in microseconds, and bytes.
CPU_BUDGET = "cpu_seconds"
OUTPUT_BUDGET = "output_bytes"
# The reason for ending a command when the session's budget is used up.
BUDGET_REASON = "budget_exceeded"

# Limits per command or terminal: how many executions may run ahead of the acknowledgement of their
# events, and how many repeats of a recorded execution may, where repeats are counted.
MOST_UNACKNOWLEDGED_EXECS = 8
MOST_UNACKNOWLEDGED_REPEATS = 128

Message = dict[str, Any]


class Confinement(NamedTuple):
    """What the kernel enforces on commands besides the sandbox's own mounts and limits."""

    # Landlock: commands can execute only their own programs, and read only what these need, the
    # workspace and /tmp. Without it the read-only root is the boundary.
    paths: bool
    # Further paths of the image that may be read and executed: absolute paths of files or
    # directories.
    read: list[str]
    execute: list[str]
    # Memory may be writable and executable at once, as just-in-time compilers need.
    writable_code: bool
    # A command may trace its own children.
    ptrace: bool
    # Every program that a command executes is recorded as an audit event.
    record_execs: bool


class Configuration(NamedTuple):
    """What an agent must know of its session, as `configure` has it."""

    level: str
    uid: int
    # The command names that may run; None: any command (high).
    commands: list[str] | None
    # Names, or prefixes ending in `*`, of variables that a caller may set; None: any.
    environment: list[str] | None
    confinement: Confinement
    home: str
    cpus: float
    memory_bytes: int
    # Maximum number of processes of the session's uid, below the container's pids limit.
    processes: int
    output_bytes: int
    max_running: int
    # What the session used in earlier sandboxes, and its total budget; None: unlimited.
    cpu_used_us: int = 0
    cpu_budget_us: int | None = None
    output_used_bytes: int = 0
    output_budget_bytes: int | None = None
    # Writable mounts besides the workspace.
    writable: tuple[str, ...] = ()
    # The mounts that every level's commands may name, like the workspace: the session's volumes.
    volumes: tuple[str, ...] = ()
    # Where the workspace is mounted.
    workspace: str = WORKSPACE_DIR
    # Where any command may run: whether commands that are known to write may name only paths that
    # they may write.
    guard_writes: bool = True
    # Whether the sandbox has the way out through the proxy.
    egress: bool = False
    # The level's own variables of commands.
    variables: dict[str, str] = {}
    # What the session may read; None: whatever its level permits.
    consume: Consume | None = None
    # The facilities that the level goes without where the kernel lacks them.
    without: tuple[str, ...] = ()
    # The flags that mounts must have, as in `statvfs`, by their place: a runtime may lose them.
    mounts: dict[str, int] = {}
    # Commands are uid 0 of a user namespace of their own, which maps to the session's uid.
    root: bool = False


class Entry(NamedTuple):
    """One file as `file.list` and `file.stat` report it.

    `path` is relative to the workspace, in the form of `decide.files.names`, and so is `target`, a
    symbolic link's text; it is None for other types. `type` is file, directory, symlink or other.
    `modified` is in seconds since the epoch. `attributes` are those that were asked for.
    """

    path: str
    type: str
    size: int
    mode: int
    modified: float
    target: str | None = None
    # Only of `file.stat`: the entity tag.
    version: str | None = None
    attributes: dict[str, str] | None = None
