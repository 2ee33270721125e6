"""What the commands do, one file a command; `dpsep.cli` holds their options and nothing else."""
