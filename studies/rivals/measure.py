"""What one decision of a defense costs: passes, arithmetic, time; and what its paper's tie rule would add."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows.format import Evaluation
from bagcert.stored_models import card, shipped_models
from bagcert.training.run import RunFolder
from studies.common.subject import Subject, one_precision
from studies.common.timing import BATCH, measured
from studies.rivals.costs import Cost, Ties, Training, write_cost
from studies.rivals.plan import MAIN_PATCH, OURS, cost_path
from studies.rivals.runs import Bench, rival_of, trained, training_facts
from studies.rivals.tie_rules import TIE_RULES, added_by_ties


def flops(defense: Defense) -> int:
    """Operations for the scores of one image, counted while they are computed."""
    image = torch.zeros(1, defense.scorer.channels or 3, *defense.scorer.footprint.image_size)
    with FlopCounterMode(display=False) as counter:
        replace(defense, batch_size=1).scores(image)
    return int(counter.get_total_flops())


def measure(name: str, bench: Bench) -> str:
    """Write what a rival or a shipped model costs; returns the time in words."""
    if name in OURS:
        facts = card(name)
        folder, rule, training = shipped_models()[name], facts["rule"], training_facts(facts, facts["command"])
    else:
        rival = rival_of(name)
        folder, rule = bench.work / name, rival.rules[0]
        if not RunFolder(folder).config.exists():
            raise UsageError(f"The run behind the rows of {name} is not in {folder}. Remove {name}* to repeat it.")
        training = trained(rival, bench, folder)
    with one_precision(Subject.find(folder, name, bench.data_dir)) as subject:
        found = cost(subject, Evaluation(MAIN_PATCH, rule), bench.scale.effort(name).timed, training)
    write_cost(cost_path(bench.results, name), found)
    return f"{found.seconds:.1f} s for 10,000 images"


def cost(subject: Subject, evaluation: Evaluation, images: int, training: Training) -> Cost:
    """Time network and rule on the first images, scaled to 10,000."""
    header, device = subject.header, next(subject.defense.scorer.parameters()).device
    pixels = next(iter(subject.source.batches(min(images, len(subject.source)), device))).images
    # No larger than the number of images: a pass that is filled up would be timed as if it were full.
    size = min(BATCH[device.type], len(pixels))
    defense = replace(subject.defense.against(evaluation.patch, evaluation.rule), batch_size=size)
    spent = measured(header["model"], defense, pixels, repeats=1)
    seconds = (spent["network_seconds"] + spent["rule_seconds"]) * 10_000 / len(pixels)
    return Cost(
        defense=header["model"],
        weights_sha256=header["weights_sha256"],
        patch=evaluation.patch,
        rule=evaluation.rule,
        device=header["device"],
        torch=header["versions"]["torch"],
        precision=header["precision"],
        passes=defense.scorer.passes,
        flops=flops(defense),
        parameters=spent["parameters"],
        images=len(pixels),
        seconds=round(seconds, 3),
        training=training,
        ties=ties(header["model"], defense, pixels),
    )


def ties(name: str, defense: Defense, pixels: Tensor) -> Ties | None:
    """What the paper's tie rule would add on these images; None if it has no tie rule."""
    if name not in TIE_RULES:
        return None
    words, harmless = TIE_RULES[name]
    return Ties(words, int(added_by_ties(defense, defense.scores(pixels), harmless).sum()))
