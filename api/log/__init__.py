"""The log: lines of the server and of its requests, as JSON or for people."""
