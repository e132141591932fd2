"""PufferEnv, its buffers, spaces and their flat layout, seeding, registry and checks."""
