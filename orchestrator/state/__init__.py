"""What a session is, in memory and as rows of the database."""
