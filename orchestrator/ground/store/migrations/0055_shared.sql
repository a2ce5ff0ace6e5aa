-- What the cluster has lent to this node of each key's bytes of the record.
CREATE TABLE audit_loans (
    owner   TEXT PRIMARY KEY,
    granted INTEGER NOT NULL
) WITHOUT ROWID;
-- The last good copy of the cluster's secrets and hooks, sealed as they are there.
CREATE TABLE shared_secrets (
    key        TEXT NOT NULL,
    name       TEXT NOT NULL,
    use        TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    set_by     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    set_at     TEXT NOT NULL,
    PRIMARY KEY (key, name)
) WITHOUT ROWID;
CREATE TABLE shared_hooks (
    id         TEXT PRIMARY KEY,
    url        TEXT NOT NULL,
    events     TEXT NOT NULL,
    key        TEXT,
    managed_by TEXT,
    set_by     TEXT NOT NULL,
    created_at TEXT NOT NULL,
    sealed     BLOB NOT NULL
) WITHOUT ROWID;
