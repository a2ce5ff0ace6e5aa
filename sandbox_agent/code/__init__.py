"""The runners of code contexts: programs in a sandbox that execute cells one after the other."""
