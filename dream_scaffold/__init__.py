"""Start, check and scale a PyTorch training project whose every line you can read."""

__version__ = "0.1.0"
