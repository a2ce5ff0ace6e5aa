"""Other ways to run commands in containers, measured like Paddock: each in a process of its own."""
