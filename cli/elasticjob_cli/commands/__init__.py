"""The sub-commands: each asks the cluster, has it read, and shows it."""
