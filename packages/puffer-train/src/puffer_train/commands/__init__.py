"""The subcommands of `puffer`, one module each, with `main(words) -> exit code`."""
