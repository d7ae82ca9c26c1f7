"""What studies and benchmarks share: commands, results, tables, rows, training and jobs on one device."""
