-- Lines of input that a person was asked about, and what they said. `text` is exactly what was
-- asked: the decision is for that and nothing else.
CREATE TABLE approvals (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    session_key  TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    owner        TEXT NOT NULL,
    terminal_id  TEXT NOT NULL,
    tool         TEXT NOT NULL,                 -- psql.drop_table
    text         TEXT NOT NULL,
    risk_tier    TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired')),
    requested_by TEXT NOT NULL,
    requested_at TEXT NOT NULL,
    decided_by   TEXT,
    decided_at   TEXT,
    reason       TEXT
);

CREATE INDEX approvals_status ON approvals (status, number);
CREATE INDEX approvals_owner ON approvals (owner, number);
