-- Context packs. A session's row has what is shown of its pack; `packs` has the whole of it.
ALTER TABLE sessions ADD COLUMN consume TEXT;
CREATE TABLE packs (
    session_key TEXT PRIMARY KEY,
    session_id  TEXT NOT NULL COLLATE NOCASE,
    pack        TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX packs_by_session ON packs (session_id);
