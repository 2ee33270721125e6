"""The paper's tables and figure, one file each, with its printed numbers as data.

Vinaroz and Park, *Differentially Private Stochastic Expectation Propagation*, TMLR 2022. What is printed
there is marked ``"printed"`` wherever it appears; nothing printed is ever reported as measured.
"""
