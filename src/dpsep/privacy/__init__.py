"""The gate and what stands around it: sampling, noise, accounting, the ledger, checkpoints."""
