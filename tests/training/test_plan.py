"""What the pictures of a folder decide about a recipe."""

from pathlib import Path

import pytest
from PIL import Image

from bagcert.errors import UsageError
from bagcert.scorers import ResidualConfig
from bagcert.training.plan import Origin, plan_folder
from bagcert.training.recipe import Recipe
from tests.data.test_inspection import fill

Sizes = list[tuple[int, int]]


def folder_of(root: Path, sizes: Sizes, mode: str = "RGB") -> Path:
    for name in ("train/a", "train/b", "train/c", "val/a", "val/b", "val/c"):
        fill(root / name, sizes, mode)
    return root


@pytest.mark.parametrize(
    ("sizes", "named", "recipe", "resize", "crop"),
    [
        ([(8, 8)], None, "digits", 8, (8, 8)),
        ([(28, 28)], None, "folder-32", 28, (28, 28)),
        ([(32, 32)], None, "folder-32", 32, (32, 32)),
        ([(60, 80)], None, "folder-64", 60, (60, 80)),
        ([(40, 90), (33, 33), (45, 45)], None, "folder-32", 32, (32, 32)),
        ([(300, 200)], None, "folder-64", 64, (64, 64)),
        ([(300, 200), (90, 90), (50, 70)], None, "folder-64", 64, (64, 64)),
        ([(300, 200), (52, 90), (50, 70)], None, "folder-64", 52, (52, 52)),
        ([(32, 32)], "two-mask-cifar10", "two-mask-cifar10", 32, (32, 32)),
        ([(300, 200)], "two-mask-cifar10", "two-mask-cifar10", 32, (32, 32)),
        ([(32, 32)], "paper-imagenet-rf17", "paper-imagenet-rf17", 32, (32, 32)),
        ([(300, 400), (260, 300)], "paper-imagenet-rf17", "paper-imagenet-rf17", 256, (224, 224)),
        ([(100, 400), (90, 300)], "paper-imagenet-rf17", "paper-imagenet-rf17", 90, (90, 90)),
        ([(64, 64)], "two-mask-tiny-imagenet", "two-mask-tiny-imagenet", 64, (64, 64)),
    ],
)
def test_size_and_recipe(
    sizes: Sizes, named: str | None, recipe: str, resize: int, crop: tuple[int, int], tmp_path: Path
) -> None:
    planned = plan_folder(folder_of(tmp_path, sizes), named, [])
    assert f" with recipe {recipe}" in planned.told
    assert f"training at {crop[0]}x{crop[1]} " in planned.told
    data = planned.recipe.data
    assert (data.resize, data.crop, data.name) == (resize, crop, str(tmp_path))
    assert planned.recipe.network.classes == 3


def network_of(recipe: Recipe) -> ResidualConfig:
    assert isinstance(recipe.network, ResidualConfig)
    return recipe.network


def test_gray_stays_gray(tmp_path: Path) -> None:
    recipe = plan_folder(folder_of(tmp_path, [(28, 28)], "L"), None, []).recipe
    assert recipe.network.channels == 1 and recipe.data.folder(1).framing.channels == 1


def test_the_patch_is_in_pixels_of_these_pictures(tmp_path: Path) -> None:
    assert plan_folder(folder_of(tmp_path / "32", [(32, 32)]), None, []).recipe.evaluation.patch == "5x5"
    assert plan_folder(folder_of(tmp_path / "64", [(64, 64)]), None, []).recipe.evaluation.patch == "10x10"
    chosen = plan_folder(tmp_path / "64", None, ['evaluation.patch="3x7"']).recipe
    assert chosen.evaluation.patch == "3x7"


def test_overrides_have_the_last_word(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [(32, 32)])
    recipe = plan_folder(folder, None, ["data.crop=16", "data.resident=false", "network.classes=7"]).recipe
    assert (recipe.data.image_size, recipe.data.resident, recipe.network.classes) == ((16, 16), False, 7)


def test_small_folders_get_small_batches(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [(8, 8)] * 40)  # 120 to train on, 12 of them for validation
    recipe = plan_folder(folder, "two-mask-cifar10", []).recipe
    assert (recipe.training.batch_size, recipe.evaluation.batch_size) == (27, 12)
    (tmp_path / "own.toml").write_text("base = 'two-mask-cifar10'\n[training]\nbatch_size = 26\n")
    assert plan_folder(folder, str(tmp_path / "own.toml"), []).recipe.training.batch_size == 26
    assert plan_folder(folder, "two-mask-cifar10", ["training.batch_size=50"]).recipe.training.batch_size == 50


def test_small_folders_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, [(32, 32)])
    monkeypatch.setattr("bagcert.training.plan.RESIDENT", 6 * 3 * 32 * 32)
    assert plan_folder(folder, None, []).recipe.data.resident
    Image.new("RGB", (32, 32)).save(folder / "val/a/more.png")
    assert not plan_folder(folder, None, []).recipe.data.resident


def test_a_recipe_may_name_height_and_width(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("base = 'folder-64'\n[data]\ncrop = [50, 70]\n")
    recipe = plan_folder(folder_of(tmp_path / "pictures", [(300, 200)]), str(tmp_path / "own.toml"), []).recipe
    assert (recipe.data.image_size, recipe.data.resize) == ((50, 50), 50)


def test_a_recipe_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("data = 3")
    with pytest.raises(UsageError, match=r"^The value of data must be a table, but is 3"):
        plan_folder(folder_of(tmp_path / "pictures", [(8, 8)]), str(tmp_path / "own.toml"), [])


def test_a_start_brings_its_network_and_size(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [(64, 64)], "L")
    planned = plan_folder(folder, None, [], Origin("cifar10-votes"))
    network = network_of(planned.recipe)
    assert network.block_widths == (128,) * 3 + (400,) * 6 and network.positions
    assert (network.classes, network.channels, network.step) == (3, 3, "logits"), "votes are not the recipe's scores"
    assert planned.recipe.data.image_size == (32, 32) and planned.recipe.data.resize == 32
    assert (planned.recipe.training.start, planned.recipe.training.freeze) == ("cifar10-votes", False)
    frozen = plan_folder(folder, None, [], Origin("cifar10-votes", freeze=True))
    assert frozen.recipe.training.freeze and " with recipe start-head from the weights of" in frozen.told
    assert "training at 32x32 with recipe start from the weights of cifar10-votes" in planned.told
