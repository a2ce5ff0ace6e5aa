-- Sessions that move between nodes of a cluster, on either side, until nothing of the move is left.
-- leaving: this node's, unless the cluster says otherwise. left: another node's by now, and the files
-- here are kept until it has them. arriving: not active here, unless the cluster says otherwise.
-- kept: this node's for certain; only the secrets wait for a sandbox.
CREATE TABLE moves (
    session_key TEXT PRIMARY KEY,
    state       TEXT NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'kept')),
    -- The other node.
    node        TEXT NOT NULL,
    -- The secrets that no sandbox has meanwhile, sealed with this node's key; NULL: there are none.
    sealed      BLOB
);
