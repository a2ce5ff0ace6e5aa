-- The texts that a client keeps with a named snapshot, as JSON.
ALTER TABLE snapshots ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
