-- programs: 1
-- Names that a key gives to what is on one node, each once in the cluster. A node takes the name
-- before it makes what has it. `id` is that of the volume or the snapshot.
CREATE TABLE names (
    id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('volume', 'snapshot')),
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    node text NOT NULL,
    UNIQUE (owner, kind, name)
);
CREATE INDEX names_of_node ON names (node);
