-- Users who have signed out at their issuer: since when no older token is valid. Handles are.
CREATE TABLE users_signed_out (
    name   TEXT PRIMARY KEY,
    moment REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX users_signed_out_moment ON users_signed_out (moment);
