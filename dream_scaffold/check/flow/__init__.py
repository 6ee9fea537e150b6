"""What code does: the bodies of hooks, helpers and modules, followed without being run."""
