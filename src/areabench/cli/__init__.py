"""The command line: one parser, one file per command or family of commands. It may import every other room."""
