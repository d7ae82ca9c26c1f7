"""Rows: what was certified or attacked, one record per image and evaluation. Reports and
the verifier only read them.

May import: attacks, config, data, defense, distributed, errors, files, hub, pictures, program, rules, scorers,
stored_models, tensors, threats.
"""
