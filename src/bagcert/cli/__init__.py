"""The `bagcert` command: one small file per subcommand, which parses options, calls the package and prints the result.

May import: answers, attacks, audit, data, defense, distributed, errors, files, onnx, pictures, program, report, rows,
rules, server, showing, stored_models, threats, training, version.
"""
