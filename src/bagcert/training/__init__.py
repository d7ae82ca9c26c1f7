"""Recipes, losses and optimizers, and the training loop, which resumes after any interruption.

May import: config, data, defense, distributed, errors, files, pictures, program, scorers,
stored_models, tensors, threats.
"""

from bagcert.training.loop import RunOptions, train
from bagcert.training.recipe import Recipe, load_recipe, recipe_names
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped

__all__ = ["Recipe", "RunFolder", "RunOptions", "Stopped", "load_recipe", "recipe_names", "train"]
