"""Children of sessions, and the runs that they are given."""
