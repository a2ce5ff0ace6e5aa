-- Workspaces outlive sessions: an id belongs to its first owner until it is purged.
CREATE TABLE workspaces (
    id         TEXT PRIMARY KEY COLLATE NOCASE,
    owner      TEXT NOT NULL,
    uid        INTEGER NOT NULL UNIQUE,
    slot       TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    used       INTEGER NOT NULL DEFAULT 0,  -- 1 once somebody was told of a session that has it
    purging    INTEGER NOT NULL DEFAULT 0   -- 1 from the order to purge until nothing is left
);

-- One row per incarnation; an id may be used again once its session has ended.
CREATE TABLE sessions (
    key              TEXT PRIMARY KEY,
    id               TEXT NOT NULL COLLATE NOCASE,
    owner            TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (
        status IN ('active', 'paused', 'completed', 'aborted', 'budget-exceeded')
    ),
    permission_level TEXT NOT NULL,
    level            TEXT NOT NULL,               -- the level as it was when it was pinned
    image            TEXT NOT NULL,
    labels           TEXT NOT NULL DEFAULT '{}',
    env              TEXT NOT NULL DEFAULT '{}',
    limits           TEXT NOT NULL DEFAULT '{}',
    idle_timeout     INTEGER NOT NULL,
    handle_sha256    TEXT UNIQUE,
    sandbox          TEXT,                        -- of the current sandbox
    container_id     TEXT,
    acknowledged     INTEGER NOT NULL DEFAULT 0,  -- 1 once its creator was told
    created_at       TEXT NOT NULL,
    terminated_at    TEXT,
    termination      TEXT
);

CREATE UNIQUE INDEX sessions_live_id ON sessions (id) WHERE status IN ('active', 'paused');

-- The audit ledger: one hash chain per session_key. `body` is the text that was hashed.
CREATE TABLE events (
    id            INTEGER PRIMARY KEY,
    session_key   TEXT NOT NULL,
    session_id    TEXT,
    seq           INTEGER NOT NULL,
    time          TEXT NOT NULL,
    operation     TEXT NOT NULL,
    decision      TEXT,
    turn          INTEGER,
    command_id    TEXT,
    agent_boot_id TEXT,
    agent_seq     INTEGER,
    body          TEXT NOT NULL,
    prev_hash     TEXT NOT NULL,
    hash          TEXT NOT NULL,
    UNIQUE (session_key, seq)
);

CREATE UNIQUE INDEX events_agent ON events (session_key, agent_boot_id, agent_seq)
    WHERE agent_seq IS NOT NULL;
CREATE INDEX events_operation ON events (session_key, operation);
CREATE INDEX events_command ON events (session_key, command_id, seq)
    WHERE command_id IS NOT NULL;
