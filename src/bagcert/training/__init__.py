"""Training: losses, optimizers, recipes, and a loop that resumes."""

from bagcert.training.folder import RunFolder
from bagcert.training.interrupt import Stopped
from bagcert.training.loop import Order, train
from bagcert.training.recipe import Recipe, load_recipe, recipe_names

__all__ = ["Order", "Recipe", "RunFolder", "Stopped", "load_recipe", "recipe_names", "train"]
