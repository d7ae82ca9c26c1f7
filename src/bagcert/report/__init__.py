"""One self-contained page from rows, with tables and figures beside it. It only reads rows and never runs a model.

May import: config, data, errors, files, pictures, program, rows, rules, scorers, threats.
"""
