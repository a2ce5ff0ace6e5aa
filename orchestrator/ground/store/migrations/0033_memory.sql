-- What the sessions of a key remember for later ones. `tags` is a JSON list; the session and the
-- turn that wrote an entry are NULL for the host's.
CREATE TABLE memory (
    number     INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    kind       TEXT NOT NULL,
    text       TEXT NOT NULL,
    tags       TEXT NOT NULL,
    session_id TEXT,
    written_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    changed_at TEXT NOT NULL
);
CREATE INDEX memory_of_owner ON memory (owner, number);
-- `place` is one word for the owner and the namespace, so that a search reads no others.
CREATE VIRTUAL TABLE memory_words USING fts5 (place, text, tags);
