-- Users of issuers: what the newest token of each says, and since when nothing older is valid.
CREATE TABLE signed_in_users (
    name      TEXT PRIMARY KEY,
    entry     TEXT NOT NULL,
    issued_at TEXT NOT NULL,
    until     REAL NOT NULL,
    holds     REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX signed_in_users_until ON signed_in_users (until);
CREATE TABLE users_left (
    name   TEXT PRIMARY KEY,
    moment REAL NOT NULL
) WITHOUT ROWID;
