"""Gymnasium environments of any space as PufferEnvs."""
