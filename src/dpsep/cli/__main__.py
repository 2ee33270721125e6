"""``python -m dpsep.cli``."""

from dpsep.cli.commands import main

main()
