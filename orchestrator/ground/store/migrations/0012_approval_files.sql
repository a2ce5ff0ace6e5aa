-- The files that a line names, by path the digest of what was in them when it was asked about.
ALTER TABLE approvals ADD COLUMN files TEXT NOT NULL DEFAULT '{}';
