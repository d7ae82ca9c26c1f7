"""Image classifiers whose decisions are proven safe from adversarial patches, in one forward pass."""
