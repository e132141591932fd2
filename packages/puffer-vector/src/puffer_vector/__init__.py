"""Shared-memory vectorisation of reinforcement-learning environments: serial, threads, processes."""
