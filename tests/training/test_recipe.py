import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from bagcert.config import write_toml
from bagcert.errors import UsageError
from bagcert.scorers import CIFAR_KERNELS, IMAGENET_KERNELS, ResidualConfig, ResidualScorer
from bagcert.scorers.ablation import AblationConfig
from bagcert.threats import parse_threat
from bagcert.training.losses import MarginLoss, TwoMaskLoss, WindowLoss
from bagcert.training.optimizers import AdamConfig, MuonConfig
from bagcert.training.recipe import Recipe, load_recipe, read_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_resolved_recipe_is_the_recipe(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    file = tmp_path / "recipe.toml"
    file.write_text(write_toml(recipe.table()))
    assert load_recipe(str(file)) == recipe
    assert read_recipe(tomllib.loads(file.read_text())) == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_header_gives_the_command(name: str) -> None:
    text = (Path(__file__).parents[2] / "src/bagcert/recipes" / f"{name}.toml").read_text()
    assert f"#   bagcert train {name} " in text
    assert "Expected clean and certified accuracy" in text


def residual(recipe: Recipe) -> ResidualConfig:
    assert isinstance(recipe.network, ResidualConfig)
    return recipe.network


@pytest.mark.parametrize("field", CIFAR_KERNELS)
def test_paper_cifar_recipes(field: int) -> None:
    recipe = load_recipe(f"paper-cifar10-rf{field}")
    assert residual(recipe).kernels == CIFAR_KERNELS[field]
    assert recipe == Recipe(network=recipe.network)  # the defaults are App. A.1.1
    assert (residual(recipe).width, residual(recipe).paths, residual(recipe).shake) == (768, 2, True)
    assert recipe.loss == MarginLoss(margin=0.5, one_hot=0.0)
    assert recipe.optimizer == AdamConfig(lr=0.001)
    assert (recipe.training.batch_size, recipe.training.average) == (96, 0)
    assert (recipe.schedule.shape, recipe.schedule.epochs, recipe.schedule.warmup_epochs) == ("cosine", 350, 10)
    assert (recipe.data.flip, recipe.data.crop_padding) == (True, 4)


@pytest.mark.parametrize("field", IMAGENET_KERNELS)
def test_paper_imagenet_recipes(field: int) -> None:
    recipe = load_recipe(f"paper-imagenet-rf{field}")
    assert residual(recipe).kernels == IMAGENET_KERNELS[field]
    assert recipe.loss == MarginLoss(margin=0.25, one_hot=1.0)
    assert recipe.optimizer == AdamConfig(lr=0.00033)
    assert (recipe.training.batch_size, recipe.schedule.epochs, recipe.schedule.warmup_epochs) == (64, 60, 10)
    assert residual(recipe).block_widths == (64, 64, 64, 128, 128, 256, 256, 512, 512)
    assert residual(recipe).block_strides == (2, 1, 2, 1, 1, 1, 1, 1)


def test_two_mask_recipe() -> None:
    recipe = load_recipe("two-mask-cifar10")
    assert recipe.loss == TwoMaskLoss(smoothing=0.1)
    assert recipe.optimizer == MuonConfig(lr=0.06)
    scorer = ResidualScorer(residual(recipe), (32, 32))
    assert sum(weight.numel() for weight in scorer.parameters()) < 3e6
    assert scorer.footprint.receptive_field == (7, 7)


def test_overrides() -> None:
    recipe = load_recipe(
        "fast-cifar10",
        [
            "network.width=64",
            "network.step=sigmoid",
            "schedule.epochs=3",
            "schedule.warmup_epochs=1",
            "loss.margin = 0.25",
            "data.flip=false",
            "network.kernels=[3, 1]",
        ],
    )
    assert residual(recipe).width == 64 and residual(recipe).kernels == (3, 1)
    assert residual(recipe).step == "sigmoid"
    assert recipe.schedule.epochs == 3.0
    assert recipe.loss == MarginLoss(margin=0.25)
    assert recipe.data.flip is False


def test_another_loss_forgets_the_keys_of_the_first() -> None:
    assert load_recipe("fast-cifar10", ["loss.name=two-mask", "loss.weight=0.5"]).loss == TwoMaskLoss(weight=0.5)
    assert load_recipe("fast-cifar10", ["loss.name=margin"]).loss == MarginLoss(margin=0.5)


def test_another_network_forgets_the_keys_of_the_first(tmp_path: Path) -> None:
    assert load_recipe("fast-cifar10", ["network.name=ablation", "network.theta=0"]).network == AblationConfig(theta=0)
    plain = load_recipe("fast-cifar10")
    assert load_recipe("fast-cifar10", ["network.name=residual"]) == plain
    (tmp_path / "own.toml").write_text("base = 'fast-cifar10'\n[network]\nname = 'ablation'\nwidth = 8\n")
    (tmp_path / "next.toml").write_text(f"base = '{tmp_path}/own.toml'\n[network]\ntheta = 0.2\n")
    assert load_recipe(str(tmp_path / "next.toml")).network == AblationConfig(width=8, theta=0.2)
    with pytest.raises(UsageError, match=r"Unknown network 'ablatoin'\. Did you mean 'ablation'\? Known: "):
        load_recipe("fast-cifar10", ["network.name=ablatoin"])


def test_other_data_keep_the_augmentation(tmp_path: Path) -> None:
    before = load_recipe("digits").data
    assert load_recipe("digits", ["data.name=cifar10"]).data == replace(before, name="cifar10")
    (tmp_path / "own.toml").write_text("base = 'digits'\n[data]\nname = 'cifar10'\n[loss]\nname = 'margin'\n")
    recipe = load_recipe(str(tmp_path / "own.toml"))
    assert recipe.data == replace(before, name="cifar10")
    assert recipe.loss == MarginLoss()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("network.widht=3", r"Unknown network key 'widht'\. Did you mean 'width'\? Known: "),
        ("netwrok.width=3", r"Unknown recipe section 'netwrok'\. Did you mean 'network'\? Known: "),
        ("network.width=wide", "The value of network.width must be a whole number, but is 'wide'"),
        ("network.width=[64, 'a']", r"The value of network.width\[1\] must be a whole number, but is 'a'"),
        ("network.paths=1.5", "The value of network.paths must be a whole number, but is 1.5"),
        ("network.paths=true", "The value of network.paths must be a whole number, but is True"),
        ("network.shake=1", "The value of network.shake must be true or false, but is 1"),
        ("network.kernels=3", "The value of network.kernels must be a list, but is 3"),
        ("optimizer.lr=fast", "The value of optimizer.lr must be a number, but is 'fast'"),
        ("data.name=3", "The value of data.name must be a string, but is 3"),
        ("loss.name=margni", r"Unknown loss 'margni'\. Did you mean 'margin'\? Known: "),
        ("loss.window=[3,3]", r"Unknown loss key 'window'\. .*Known: margin, one_hot\."),
        ("optimizer.lr=inf", "The value of optimizer.lr must be a finite number, but is inf"),
        ("optimizer.lr=nan", "The value of optimizer.lr must be a finite number, but is nan"),
        ("optimizer.lr=-1", r"The value of optimizer.lr must lie in 0\.\.100, but is -1\.0"),
        ("schedule.epochs=inf", "The value of schedule.epochs must be a finite number, but is inf"),
        ("network.width=1000000000", r"The value of network.width must lie in 1\.\.16,384, but is 1000000000"),
        (
            "network.kernels=[3, 1000000001]",
            r"The value of network.kernels must lie in 1\.\.99, but is \[3, 1000000001\]",
        ),
        ("network.width=" + "[" * 5000 + "]" * 5000, r"The value of network.width is nested too deeply\. Give"),
        ("network", "The option --set takes SECTION.KEY=VALUE, not 'network'"),
        ("network.=3", "The option --set takes SECTION.KEY=VALUE, not 'network.=3'"),
        ("training.batch_size=0", "The value of training.batch_size must be at least 1, but is 0"),
        ("training.average=1.0", "The value of training.average must be at least 0 and below 1, but is 1.0"),
        ("evaluation.times=0", "evaluation.times and evaluation.batch_size must be at least 1, but are 0 and 500"),
    ],
)
def test_wrong_overrides_are_named(override: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        load_recipe("fast-cifar10", [override])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "size", "window"),
    [
        ("two-mask-cifar10", 32, (11, 11)),
        ("pair-cifar10", 32, (11, 11)),
        ("mask-bn-cifar10", 32, (11, 11)),
        ("two-mask-tiny-imagenet", 64, (9, 9)),
        ("digits", 8, (3, 3)),
    ],
)
def test_masks_of_the_loss_are_as_large_as_what_the_patch_reaches(
    name: str, size: int, window: tuple[int, int]
) -> None:
    recipe = load_recipe(name, ["network.width=1"])
    footprint = recipe.network.build((size, size), (0.0,), (1.0,)).footprint
    fitted = recipe.loss.against(parse_threat(recipe.evaluation.patch, (size, size)), footprint)
    assert isinstance(fitted, WindowLoss) and fitted.window == window


@pytest.mark.parametrize("value", ["[11, 11]", "[0, 0]", "[1, 2, 3]"])
def test_nobody_sets_the_window_of_a_loss(value: str) -> None:
    with pytest.raises(UsageError, match=r"^Unknown loss key 'window'\. .*Known: smoothing, weight\.$"):
        load_recipe("two-mask-cifar10", [f"loss.window={value}"])


def test_recipes_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown recipe 'fast-cifar'\. Did you mean 'fast-cifar10'\? Known: "):
        load_recipe("fast-cifar")
    with pytest.raises(UsageError, match=r"The recipe file 'none.toml' does not exist"):
        load_recipe("none.toml")
    torn = tmp_path / "torn.toml"
    for text, words in (
        ("[network", "^Cannot read the recipe '.*torn.toml': "),
        ("network = 3", "The value of network must be a table, but is 3"),
        ("a = " + "[" * 5000 + "]" * 5000, "^Cannot read the recipe '.*torn.toml': it is nested too deeply"),
        ("base = 3", "^The base of recipe '.*torn.toml' must be the name of another recipe, but is 3"),
        ("base = 'zzz'", "^Unknown recipe 'zzz'"),
        (f"base = '{torn}'", "^The base of recipe '.*torn.toml' must be the name of another recipe, but is '.*torn"),
        ("base = 'digits'\nloss = 3", "^The value of loss must be a table, but is 3"),
    ):
        torn.write_text(text)
        with pytest.raises(UsageError, match=words):
            load_recipe(str(torn))
