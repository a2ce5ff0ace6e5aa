-- To how many bytes a workspace is held: kept ones count in their owner's quota, too.
ALTER TABLE workspaces ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE workspaces SET size = coalesce((
    SELECT min(
        json_extract(level, '$.limits.workspace_bytes'),
        coalesce(json_extract(limits, '$.workspace_bytes'), 9223372036854775807)
    )
    FROM sessions WHERE sessions.id = workspaces.id ORDER BY sessions.created_at DESC LIMIT 1
), 0);
CREATE INDEX workspaces_owner ON workspaces (owner, created_at);
