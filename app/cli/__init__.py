"""The `specchat` command: one file for each group of commands."""
