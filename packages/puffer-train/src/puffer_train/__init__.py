"""PuffeRL: PPO with memory, its command line, checkpoints and metrics."""
