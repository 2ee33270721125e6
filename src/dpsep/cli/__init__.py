"""The command line: `commands` holds options and help; what a command does is in the module of its name."""
