-- Volumes by owner and name. `workspace_id` is the row of workspaces that has the uid, the slot and
-- the size of the volume's files.
CREATE TABLE volumes (
    owner        TEXT NOT NULL,
    name         TEXT NOT NULL,
    workspace_id TEXT NOT NULL UNIQUE,
    PRIMARY KEY (owner, name)
) WITHOUT ROWID;
