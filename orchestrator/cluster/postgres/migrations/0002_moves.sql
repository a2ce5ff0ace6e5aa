-- programs: 1
-- Sessions that move: offered by the node that has received one, committed by the node that gives it
-- away. A row is removed when the session is active on its new node.
CREATE TABLE moves (
    session_key text COLLATE "C" PRIMARY KEY,
    -- The life that goes on.
    source_key text COLLATE "C" NOT NULL,
    node text NOT NULL,
    epoch bigint NOT NULL,
    committed boolean NOT NULL DEFAULT false
);
CREATE INDEX moves_of_source ON moves (source_key);
CREATE INDEX moves_of_node ON moves (node);
