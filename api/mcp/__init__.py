"""The Model Context Protocol: the operations of a session as tools of an agent."""
