-- What makes this state directory a node of its cluster, whatever machine it is on.
CREATE TABLE node_identity (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    identity TEXT NOT NULL
);
