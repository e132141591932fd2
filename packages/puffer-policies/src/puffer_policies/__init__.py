"""Policies for reinforcement learning: encoders, memory, action heads."""
