"""The `bagcert` command: one small file per subcommand, which parses options, calls the package and prints the result.

May import: answers, attacks, audit, data, defending, defense, distributed, errors, files, hub, onnx, pictures, program,
publishing, report, rows, rules, scorers, server, showing, stored_models, threats, training, version, zoo.
"""
