"""The survey of honesty: do private posteriors keep their word, on tables that are ordinary and hard?

`designs` makes columns, `targets` outcomes and estimators, `cells` is the fixed list, `work` fits, `pool`
runs processes, `floor` says what is possible, `results` what came of it, `others` are peers, `survey` is the
command.

**Privacy.** Made data only; the noise is seeded, so nothing here is for release.
"""
