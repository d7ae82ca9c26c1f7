"""The threshold of alerts for a wanted rate of false ones, chosen on images that the network has not seen.

An image raises a false alert if it is clean and raises one. How far another class leads outside some mask says for
every threshold at once whether it does, so one pass over the validation split serves all rates.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from bagcert.data import Source
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.files import read_json, write_json
from bagcert.hub import is_on_hub
from bagcert.rows.format import Evaluation
from bagcert.rules import IntegerScores, Rule, find_rule
from bagcert.rules.alerts import least_lead
from bagcert.scorers.weights import CONFIG
from bagcert.stored_models import model_folder
from bagcert.threats import Threat, parse_threat
from bagcert.threats.masks_file import MASKS
from bagcert.threats.threat import Size

BATCH = 96  # images


@dataclass(frozen=True)
class Threshold:
    """What a card says: the threshold for this patch, rule and rate, and the images that it was chosen on."""

    patch: str
    rule: str  # without a threshold
    false_alerts: str  # the wanted rate, such as 1%
    above: int  # score units
    split: str
    images: int


def read_rate(text: str) -> Fraction:
    """A share of all clean images, such as 1% or 0.5%."""
    if not re.fullmatch(r"\d{1,2}(\.\d{1,4})?%", text.strip()):
        raise UsageError(f"Cannot read the rate of false alerts '{text}'. Write a percentage, as in 1%.")
    return Fraction(text.strip()[:-1]) / 100


def alert_leads(defense: Defense, scores: IntegerScores) -> Tensor:
    """The least lead of each prediction outside any mask, int64 [b]: an alert above t is raised if it is below -t."""
    regions = defense.regions.to(scores.values.device)
    return least_lead(scores.values, defense.rule.predict(scores, regions), defense.rule.masks_for(regions)).long()


def threshold_for(leads: Tensor, rate: Fraction) -> int:
    """The smallest threshold at which at most this share of the images raises an alert."""
    behind = (-leads).clamp(min=0).sort(descending=True).values
    allowed = int(rate * len(behind))
    return int(behind[allowed]) if allowed < len(behind) else 0


def choose(defense: Defense, source: Source, rate: Fraction) -> tuple[int, int]:
    """The threshold for this rate on these images, and their number."""
    batches = source.batches(BATCH, defense.device)
    leads = [alert_leads(defense, defense.scores(batch.images)).cpu() for batch in batches]
    return threshold_for(torch.cat(leads), rate), len(source)


def find_threshold(defense: Defense, rate: str) -> Threshold | None:
    """The threshold on the card for the defense's threat and rule, and this rate; None if there is none."""
    wanted, size = read_rate(rate), defense.threat.image_size
    for found in (Threshold(**entry) for entry in defense.card.get("alerts", [])):
        fits = (found.rule, read_rate(found.false_alerts)) == (defense.rule.written, wanted)
        if fits and str(defense.threat) in (found.patch, same_in_words(found.patch, size)):
            return found
    return None


def same_in_words(patch: str, size: Size) -> str:
    """The patch as its threat writes it; masks are named by a digest of what their file holds."""
    return patch if patch.startswith(MASKS) else str(parse_threat(patch, size))


def need_alerts(rule: Rule) -> None:
    """Refuse a rule that raises no alerts, and one that has a threshold already."""
    rule.alerting(0)
    if ":" in rule.written:
        raise UsageError(f"Rule '{rule.written}' has a threshold already. Leave out --false-alerts, or the threshold.")


def cannot_choose(defense: Defense) -> str | None:
    """Why the card of a model gets no threshold; None if it may. A network raises too few alerts on what it knows."""
    if defense.card.get("validation", {}).get("trained_on"):
        return "the network was trained on it"
    return "what is cached of the Hub is not changed" if is_on_hub(defense.name) else None


def at_rate(defense: Defense, rate: str) -> Defense:
    """The defense with alerts at this rate of false ones; the threshold must be on its card.

    It was chosen with the masks of the threat itself: larger ones raise more alerts.
    """
    need_alerts(defense.rule)
    if defense.rule.masks_for(defense.regions) is not defense.regions:
        raise UsageError(
            f"Rule '{defense.rule.written}' has other masks than those of {defense.threat}, and no card has thresholds "
            f"for them. Take defense.against('{defense.threat}'), or give a threshold."
        )
    found = find_threshold(defense, rate)
    if found is None:
        patch, rule = defense.threat, defense.rule.written
        named = "--masks FILE.npy" if str(patch).startswith(MASKS) else f"--patch '{patch}'"
        first = f"Run `bagcert certify` with {named} --rule {rule} --false-alerts {rate} first."
        cure = first if cannot_choose(defense) is None else f"Give one, as in --rule {rule}:400."
        raise UsageError(f"The card has no threshold for {rate} false alerts, patch {patch} and rule {rule}. {cure}")
    return replace(defense, rule=defense.rule.alerting(found.above))  # with the very masks it has


def settled(
    model: str | Path,
    defense: Defense,
    entry: Evaluation,
    rate: str,
    validation: Callable[[], Source],
    threat: Threat | None = None,
) -> Evaluation:
    """The evaluation with the threshold for this rate: of the card, or chosen on the validation split for the card.

    The threat is what the evaluation's text says, unless that is one which comes from a file.
    """
    wanted, rule = read_rate(rate), find_rule(entry.rule)
    need_alerts(rule)
    facing = defense.against(threat or entry.patch, rule)
    found = find_threshold(facing, rate)
    if found is None:
        if (why := cannot_choose(defense)) is not None:
            raise UsageError(
                f"No threshold for {rate} false alerts can be chosen on the validation split: {why}. "
                f"Give one, as in --rule {entry.rule}:400."
            )
        above, images = choose(facing, validation(), wanted)
        found = Threshold(entry.patch, entry.rule, rate, above, "validation", images)
        store_threshold(model_folder(model), found)
    return Evaluation(entry.patch, rule.alerting(found.above).written)


def store_threshold(folder: Path, found: Threshold) -> None:
    """Put a threshold on the card of a model, in place of another one for the same patch, rule and rate."""
    card = read_json(folder / CONFIG)
    kept = [
        each
        for each in card.get("alerts", [])
        if (each["patch"], each["rule"], each["false_alerts"]) != (found.patch, found.rule, found.false_alerts)
    ]
    write_json(folder / CONFIG, {**card, "alerts": [*kept, asdict(found)]})
