"""What is done in a session: commands, files, terminals, approvals, memory, models, proposals."""
