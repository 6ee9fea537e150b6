"""`python -m dream_scaffold` is `dream`."""

from .cli import main

main()
