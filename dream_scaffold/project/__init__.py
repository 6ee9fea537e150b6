"""`dream new`: from a few answers to a project that trains."""
