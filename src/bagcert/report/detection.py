"""What alerts add: the four outcomes, and certified detection against false alerts."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bagcert.report.drawing import Picture, Point, axes, draw_lines, percent_axis, picture
from bagcert.report.inputs import Inputs
from bagcert.report.tables import Table, percent
from bagcert.rows.accuracy import accuracies, share
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation
from bagcert.rules import detects, find_rule

WARNING = "An attacker can always provoke an alert."
POINTS = 40  # of a curve


def alert_headline(inputs: Inputs) -> str:
    """The first result in one sentence, if all rules detect."""
    model, rows = next(iter(inputs.alerting.items()))
    entry = inputs.main(rows)
    shares = rows.accuracies(entry)
    return (
        f"{model} is right without an alert on {100 * shares.clean:.2f} % of {shares.images:,} images, and on "
        f"{100 * shares.certified:.2f} % it is proven that, whatever a {entry.patch} patch shows, the answer stays "
        f"right or an alert is raised (rule {entry.rule}). {WARNING}"
    )


def alert_table(inputs: Inputs) -> Table:
    """For each evaluation with alerts: the accuracies of detection, and the four outcomes."""
    lines = []
    for model, rows in inputs.alerting.items():
        for entry, found in rows.results.items():
            assert found.alert is not None and found.detectable is not None
            shares = accuracies(found, rows.labels, detection=True)
            kinds = (found.certified, found.detectable & ~found.certified, found.alert)
            outcomes = [share(kind) for kind in kinds]
            right_if_none = shares.clean / (1 - outcomes[2]) if outcomes[2] < 1 else 1.0
            numbers = (shares.clean, shares.certified, *outcomes, 1 - sum(outcomes), right_if_none)
            lines.append((model, entry.patch, entry.rule, *map(percent, numbers)))
    heads = ("model", "patch", "rule", "clean %", "certified %", "proven %", "detectable %", "alerted %", "neither %")
    note = (
        "Clean: right, and no alert. Certified: right, and whatever the patch, the same answer or an alert. Then every "
        "image, right or wrong, is one of four. Proven: no patch changes the answer. Detectable, if not proven: this "
        f"answer or an alert. Alerted: do not use the answer. Neither: no alert, and no promise. {WARNING}"
    )
    return Table("alerts", "Abstain or alert", note, (*heads, "right if no alert %"), tuple(lines), 3)


def alert_figure(inputs: Inputs) -> Picture | None:
    """Certified detection against false alerts; all thresholds follow from stored leads, else only those certified."""
    lines: dict[str, list[Point]] = {}
    for model, rows in inputs.alerting.items():
        for entry in rows.results:
            if detects(entry.rule):
                name = f"{model}, {entry.patch}" if len(inputs.alerting) > 1 else entry.patch
                lines.setdefault(name, []).extend(curve(rows, entry))
    if not any(len(set(points)) > 1 for points in lines.values()):
        return None

    def draw() -> Figure:
        figure, ax = axes()
        draw_lines(
            ax, {name: sorted(set(points)) for name, points in lines.items()}, {}, "clean images with an alert, %"
        )
        ax.set_xticks(range(0, 1 + int(max(x for points in lines.values() for x, _ in points)) + 1, 5))
        percent_axis(ax, "certified detection, %")
        ax.legend()
        return figure

    note = f"A lower threshold: more alerts on clean images, more of them right and detectable. {WARNING}"
    return picture("false-alerts", "Certified detection against false alerts", note, draw)


def curve(rows: Rows, entry: Evaluation) -> list[Point]:
    """Points of false alerts and certified detection, in percent."""
    found, above = rows.results[entry], find_rule(entry.rule).alert_above
    assert above is not None
    if found.lead is None:
        shares = rows.accuracies(entry)
        assert shares.alerted is not None
        return [(100 * shares.alerted, 100 * shares.certified)]
    leads, right = found.lead + above, found.predicted == rows.labels
    return [point(leads, right, int(each)) for each in thresholds(leads)]


def thresholds(leads: Tensor) -> Tensor:
    """From 0 to the first without any alert, so that alerts fall in about equal steps."""
    behind = torch.cat([leads.new_zeros(1), (-leads[leads < 0]).sort().values])
    return behind[torch.linspace(0, len(behind) - 1, min(POINTS, len(behind))).round().long()]


def point(leads: Tensor, right: Tensor, above: int) -> Point:
    return 100 * share(leads < -above), 100 * share(right & (leads > above))
