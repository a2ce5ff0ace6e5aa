-- How many people must approve, and who has, as JSON.
ALTER TABLE approvals ADD COLUMN approvers INTEGER NOT NULL DEFAULT 1;
ALTER TABLE approvals ADD COLUMN approved_by TEXT NOT NULL DEFAULT '[]';
