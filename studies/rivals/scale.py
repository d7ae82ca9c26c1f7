"""How much of everything the rivals' runs do, where one GPU is too slow for all of it, and as a rehearsal."""

from dataclasses import dataclass, field, replace

from bagcert.attacks import AttackSettings


@dataclass(frozen=True)
class Effort:
    """How many images are certified, attacked and timed, and how hard they are attacked."""

    images: int = 10_000
    other_images: int = 10_000  # against the patches of files of their own
    attacked: int = 1_000
    attack: AttackSettings = field(default_factory=AttackSettings)
    timed: int = 10_000


# ds-block: 1,024 ablations per image, of which an attack follows 256 at every step. patchcleanser: 666 pairs of masks
# per image, and as many for each attack that may have succeeded. ibp: up to 961 bounds per image in float64. Fewer but
# larger steps go as far. The lead of views says little about where an attack succeeds, so several placements are tried.
EFFORTS = {
    "ds-block": Effort(attacked=500, attack=AttackSettings(steps=25, step_size=0.1), timed=500),
    "patchcleanser": Effort(attacked=500, attack=AttackSettings(steps=25, step_size=0.1, places=4), timed=500),
    "ibp": Effort(images=1_000, other_images=500, attacked=300, timed=100),
}
FULL = Effort()


@dataclass(frozen=True)
class Scale:
    """Everything as planned, or a rehearsal on a CPU."""

    networks: dict[str, tuple[str, ...]] = field(default_factory=dict)  # settings by kind of network
    every: tuple[str, ...] = ()  # settings of every recipe
    most: int | None = None  # images of anything
    steps: int | None = None  # of an attack

    def effort(self, name: str) -> Effort:
        effort = EFFORTS.get(name, FULL)
        if self.most is None or self.steps is None:
            return effort
        images = {key: min(getattr(effort, key), self.most) for key in ("images", "other_images", "attacked", "timed")}
        return replace(effort, **images, attack=AttackSettings(steps=self.steps))


PLANNED = Scale()
TINY = Scale(
    {
        "residual": ("network.width=4",),
        "ablation": ("network.width=2", "network.blocks=[1]"),
        "cleanser": ("network.width=2", "network.blocks=[1]", "network.masks=2"),
        "interval": ("network.widths=[2, 2]", "network.strides=[2, 2]", "network.features=4", "network.masks=4"),
    },
    (
        "training.batch_size=20",
        "schedule.epochs=0.01",
        "schedule.warmup_epochs=0.001",
        "evaluation.images=20",
        "evaluation.batch_size=20",
    ),
    4,
    2,
)
