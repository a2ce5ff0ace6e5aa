"""Commands of a session: execution, records and evidence."""
