-- When its last session ended, by a clock that was set meanwhile; null: as the session says.
ALTER TABLE workspaces ADD COLUMN kept_since TEXT;
