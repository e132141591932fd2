"""Squared in plain Python."""

from puffer_ocean.envs.pysquared.pysquared import PySquared

__all__ = ["PySquared"]
