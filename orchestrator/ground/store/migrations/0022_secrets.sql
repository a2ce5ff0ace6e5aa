-- Secrets that were set over the API, their values sealed with a key that is not here. An empty `key`
-- is all keys, an empty `session_key` all sessions.
CREATE TABLE secrets (
    key         TEXT NOT NULL,
    session_key TEXT NOT NULL,
    name        TEXT NOT NULL,
    use         TEXT NOT NULL,
    sealed      BLOB NOT NULL,
    set_by      TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    set_at      TEXT NOT NULL,
    PRIMARY KEY (key, session_key, name)
) WITHOUT ROWID;
CREATE INDEX secrets_session ON secrets (session_key);
-- What a key has used besides its sessions: events in the system's chain, and its bytes to and from
-- the outside on the latest day.
CREATE TABLE key_usage (
    owner        TEXT PRIMARY KEY,
    audit_bytes  INTEGER NOT NULL DEFAULT 0,
    egress_day   TEXT NOT NULL DEFAULT '',
    egress_bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
