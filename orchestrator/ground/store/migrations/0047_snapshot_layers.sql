-- What the writable layer of root inside takes of a named snapshot's bytes; NULL: it has none.
ALTER TABLE snapshots ADD COLUMN layer_bytes INTEGER;
