"""Users who sign in by an issuer: put on record, and ended on all nodes."""
