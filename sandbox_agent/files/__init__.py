"""File operations, in processes of their own with the session's user."""
