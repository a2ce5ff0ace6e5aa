-- Owners whose content is being erased; a start goes on with them.
CREATE TABLE erasures (
    owner    TEXT PRIMARY KEY,
    asked_by TEXT NOT NULL
) WITHOUT ROWID;
