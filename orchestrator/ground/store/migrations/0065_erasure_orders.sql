-- Erasures that have begun and have not ended: ordered here (`request` 0), or by the cluster's
-- request of that number. A start goes on with them.
CREATE TABLE erasure_orders (
    owner    TEXT NOT NULL,
    request  INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    reason   TEXT NOT NULL,
    PRIMARY KEY (owner, request)
) WITHOUT ROWID;
INSERT INTO erasure_orders SELECT owner, 0, asked_by, '' FROM erasures;
DROP TABLE erasures;
