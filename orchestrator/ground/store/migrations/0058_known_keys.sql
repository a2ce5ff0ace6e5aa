-- When each API key was used last (unix seconds), and its scopes, as JSON, while it had some: the
-- handles of a removed key's sessions have no more.
CREATE TABLE known_keys (
    name    TEXT PRIMARY KEY,
    used_at INTEGER,
    scopes  TEXT
) WITHOUT ROWID;
