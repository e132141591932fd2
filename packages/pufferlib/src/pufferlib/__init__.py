"""The whole Puffer stack under one name."""
