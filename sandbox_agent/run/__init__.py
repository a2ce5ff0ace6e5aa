"""Commands: started, fed, signalled and ended."""
