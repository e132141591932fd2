"""Target: rules in C, the settings it is trained with, and a network."""
