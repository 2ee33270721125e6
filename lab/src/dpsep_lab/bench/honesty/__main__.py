"""``python -m dpsep_lab.bench.honesty``: the survey where there is no command line."""

from dpsep_lab.bench.honesty.survey import main

if __name__ == "__main__":
    raise SystemExit(main())
