"""The workspace interface of OpenHands' agent server, one session as one workspace."""
