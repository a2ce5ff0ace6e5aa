-- Hooks that were added over the API, their secrets sealed with a key that is not here. A `key` of
-- NULL is all sessions, a `managed_by` of NULL all admins.
CREATE TABLE hooks (
    id         TEXT PRIMARY KEY,
    url        TEXT NOT NULL,
    events     TEXT NOT NULL,
    key        TEXT,
    managed_by TEXT,
    set_by     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    sealed     BLOB NOT NULL
) WITHOUT ROWID;
-- The id of the last event that was looked at for a hook, configured ones included.
CREATE TABLE hook_positions (
    hook_id  TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
-- Messages to hooks that have not been delivered. `due_at`, in seconds since 1970, is NULL while an
-- earlier one of the same session waits. One with `undelivered_at` is given up.
CREATE TABLE hook_deliveries (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    hook_id        TEXT NOT NULL,
    session_key    TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    type           TEXT NOT NULL,
    body           TEXT NOT NULL,
    tries          INTEGER NOT NULL DEFAULT 0,
    due_at         REAL,
    tried_at       TEXT,
    error          TEXT,
    undelivered_at TEXT
);
CREATE INDEX hook_deliveries_of_hook ON hook_deliveries (hook_id, number);
CREATE INDEX hook_deliveries_due ON hook_deliveries (hook_id, due_at)
    WHERE due_at IS NOT NULL;
CREATE INDEX hook_deliveries_waiting ON hook_deliveries (hook_id, session_key, number)
    WHERE undelivered_at IS NULL;
CREATE INDEX hook_deliveries_undelivered ON hook_deliveries (hook_id, number)
    WHERE undelivered_at IS NOT NULL;
