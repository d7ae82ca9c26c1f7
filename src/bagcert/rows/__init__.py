"""Rows: what was certified or attacked, one record per image. Reports and the verifier only read them.

May import: attacks, data, defense, errors, files, program, rules, scorers, threats.
"""
