"""The logs of runs as one page that needs nothing else: curves, configurations, events."""
