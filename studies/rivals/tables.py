"""The comparison as Markdown tables, and a page that holds them between marks."""

from collections.abc import Callable

from bagcert.report.tables import percent
from bagcert.rows.accuracy import Accuracies
from studies.common.tables import Lines, fill
from studies.rivals.papers import PAPERS
from studies.rivals.plan import MAIN_PATCH, PATCHES
from studies.rivals.results import Standing

OPEN = "not run yet"
ALL_IMAGES = 10_000


def pair(shares: Accuracies | None) -> str:
    """Clean and certified accuracy, with the number of images if these are not all."""
    if shares is None:
        return OPEN
    few = "" if shares.images == ALL_IMAGES else f" ({shares.images:,} images)"
    return f"{percent(shares.clean)} / {percent(shares.certified)}{few}"


def accuracy_table(found: list[Standing]) -> Lines:
    """Clean and certified accuracy by each rule, and what an attack left."""
    patches = [f"{patch}{': clean / certified %' if patch == MAIN_PATCH else ''}" for patch in PATCHES]
    lines: Lines = [("defense", "rule", *patches, f"{MAIN_PATCH}, attacked: certified ≤ left % (images)")]
    for standing in found:
        if not standing.results:
            blank = [""] * len(PATCHES)
            lines.append((f"`{standing.name}`", ", ".join(standing.rules), OPEN, *blank))
            continue
        for rule in standing.rules:
            cells = [pair(standing.at(rule, patch)) for patch in PATCHES]
            attack = attacked(standing) if rule == standing.rules[0] else "–"
            lines.append((f"`{standing.name}`", rule, *cells, attack))
    return lines


def attacked(standing: Standing) -> str:
    rows = standing.attack
    if rows is None:
        return OPEN
    broken = f", {len(rows.flips_of_certified)} broken proofs" if len(rows.flips_of_certified) else ""
    bounds = f"{percent(rows.certified_accuracy)} ≤ {percent(rows.attacked_accuracy)}"
    return f"{bounds} ({len(rows.labels):,}{broken})"


def paper_table(found: list[Standing]) -> Lines:
    """The papers' own numbers and ours, by each defense's own rule, and why they differ."""
    heads = ("2x2, paper", "2x2, ours", "5x5, paper", "5x5, ours", "paper read in", "why they differ")
    lines: Lines = [("defense", *heads)]
    for standing in found:
        if standing.ours:
            continue
        paper, rule = PAPERS[standing.name], standing.rules[0]
        cells = []
        for patch in ("2x2", "5x5"):
            said = paper.accuracies.get(patch)
            cells += ["not confirmed" if said is None else f"{said[0]:g} / {said[1]:g}", pair(standing.at(rule, patch))]
        lines.append((f"`{standing.name}`", *cells, paper.source or "–", paper.differs))
    return lines


def cost_table(found: list[Standing]) -> Lines:
    """What one decision costs, and what training took; seconds only if a GPU measured them."""
    heads = ("forward passes per image", "GFLOP per image", "parameters", "seconds for 10,000 images", "paper: seconds")
    lines: Lines = [("defense", *heads, "training", "images that the paper's tie rule adds")]
    for standing in found:
        cost, paper = standing.cost, PAPERS.get(standing.name)
        theirs = paper.seconds if paper is not None and paper.seconds else "–"
        if cost is None:
            lines.append((f"`{standing.name}`", OPEN, "", "", "", theirs, "", ""))
            continue
        seconds = f"{cost.seconds:,.1f} ({cost.device})" if cost.on_gpu else "not measured on a GPU"
        if cost.on_gpu and cost.images != ALL_IMAGES:
            seconds += f", from {cost.images:,}"
        training = cost.training
        spent = f"{training.epochs:g} epochs, {training.seconds:,.0f} s ({training.device})"
        if training.beside:
            spent += f" beside {training.beside} {'other' if training.beside == 1 else 'others'}"
        if training.weights_of:
            spent += f", that of `{training.weights_of}`"
        ties = "–" if cost.ties is None else f"{cost.ties.added} of {cost.images:,} ({cost.ties.rule})"
        size = f"{cost.parameters / 1e6:.1f} M"
        work = (f"{cost.passes:,}", f"{cost.flops / 1e9:,.1f}", size, seconds)
        lines.append((f"`{standing.name}`", *work, theirs, spent, ties))
    return lines


def unchecked_table(found: list[Standing]) -> Lines:
    """Each defense by its own rule, as its rows say, which have no scores; fewer images come last."""
    lines: Lines = [("defense", "rule", "clean %", "certified %", "images", "passes")]
    known = [(standing, shares) for standing in found if (shares := standing.at(standing.rules[0])) is not None]
    for standing, shares in sorted(known, key=lambda each: (-each[1].images, -each[1].certified)):
        passes = "–" if standing.cost is None else f"{standing.cost.passes:,}"
        numbers = (percent(shares.clean), percent(shares.certified), f"{shares.images:,}", passes)
        lines.append((f"`{standing.name}`", standing.rules[0], *numbers))
    return lines


TABLES: dict[str, Callable[[list[Standing]], Lines]] = {
    "accuracies": accuracy_table,
    "papers": paper_table,
    "costs": cost_table,
}


def filled(page: str, found: list[Standing]) -> str:
    """The page with its tables up to date."""
    for name, table in TABLES.items():
        page = fill(page, name, table(found))
    return page


def blank_page() -> str:
    """What a folder without a page begins with."""
    places = "".join(f"\n<!-- {name} -->\n<!-- /{name} -->\n" for name in TABLES)
    return f"# Defenses compared\n{places}\n![What each defense proves](figures/comparison.svg)\n"
