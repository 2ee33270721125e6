"""The laboratory of dpsep: the paper's tables and theorem, benchmarks, the library broken on purpose.

Users of the library do not need it. It adds `dpsep paper`, `dpsep bench`, `dpsep audit --controls` and
`--matrix` to the command line by entry points.
"""
