"""Training: losses, optimizers, recipes, and a loop that resumes."""

from bagcert.training.loop import Order, train
from bagcert.training.recipe import Recipe, load_recipe, recipe_names
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped

__all__ = ["Order", "Recipe", "RunFolder", "Stopped", "load_recipe", "recipe_names", "train"]
