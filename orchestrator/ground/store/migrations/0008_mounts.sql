-- Names of the operator's mounts that a session asked for, besides those of its level.
ALTER TABLE sessions ADD COLUMN mounts TEXT NOT NULL DEFAULT '[]';
