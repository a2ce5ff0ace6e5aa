-- What holds a workspace to its size, from its making on; before this nothing did.
ALTER TABLE workspaces ADD COLUMN quota TEXT NOT NULL DEFAULT 'none' CHECK (
    quota IN ('image', 'project', 'none')
);
