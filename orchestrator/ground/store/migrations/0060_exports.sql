-- Up to which event of the record each export has been acknowledged. Only exports of the present
-- configuration are here.
CREATE TABLE export_positions (
    name     TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
