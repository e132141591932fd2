"""Native environments in C that step tens of millions of times a second."""
