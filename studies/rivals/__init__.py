"""Our models and their rivals side by side: accuracies, what the papers say, and what each costs."""
