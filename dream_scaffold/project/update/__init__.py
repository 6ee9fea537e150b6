"""`dream update`: a project moves to a newer template, or to other answers, edits and all.

Three texts of every file are merged: what was generated (`.dream/`), what its owner made of
it, and what would be generated now. No network, no git and no clean tree are needed.
"""
