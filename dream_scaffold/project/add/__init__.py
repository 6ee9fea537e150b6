"""`dream add`: a callback, a hook, a configuration or a launcher, written into a project.

Files are edited where the syntax tree says, and nowhere else; all of them change, or none.
"""
