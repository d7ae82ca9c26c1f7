"""A traced network: the operations that its footprint was read from, ready to run."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from bagcert.errors import UsageError
from bagcert.threats.footprint import Footprint


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer that the operations take, as it was when they were traced."""

    name: str
    form: tuple[torch.Size, torch.dtype, torch.device]

    def of(self, network: nn.Module) -> Tensor:
        """Its value. Refused in another form, in which the operations may see more: a larger kernel."""
        found: Tensor = operator.attrgetter(self.name)(network)
        if (found.shape, found.dtype, found.device) != self.form:
            shape, kind, device = self.form
            raise UsageError(
                f"The tensor '{self.name}' was traced as {kind} {list(shape)} on {device}, but is {found.dtype} "
                f"{list(found.shape)} on {found.device}. Wrap the network again."
            )
        return found


class Traced(nn.Module):
    """The operations of a network and nothing else: none of its Python code runs.

    So whatever that code looks at (strides, types, the number of images, counters, clocks, whether it is traced), the
    scores come from the same operations as the footprint. The weights stay in the network.
    """

    def __init__(self, program: ExportedProgram, footprint: Footprint) -> None:
        super().__init__()
        self.footprint = footprint
        (scores,) = program.graph.output_node().args[0]
        self.classes = int(scores.meta["val"].shape[1])
        self.sources: list[Weight | str | None] = []  # a weight, the name of a constant, or None: the images
        values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        for number, spec in enumerate(program.graph_signature.input_specs):
            source: Weight | str | None = None
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                value: Any = values[spec.arg.name]
                source = Weight(str(spec.target), (value.shape, value.dtype, value.device))
            elif spec.kind == InputKind.CONSTANT_TENSOR:
                source = f"constant{number}"
                self.register_buffer(source, program.constants[str(spec.target)], persistent=False)
            self.sources.append(source)
        self.operations = program.graph_module
        for node in list(program.graph.nodes):
            node.meta = {}
            if node.target is torch.ops.aten._assert_tensor_metadata.default:
                program.graph.erase_node(node)  # under autocast, types differ from those traced
        self.operations.recompile()
        self.eval()

    def forward(self, network: nn.Module, images: Tensor) -> Tensor:
        """The scores by the weights of `network`: the one that was traced, or a copy."""
        inputs = [
            images if source is None else source.of(network) if isinstance(source, Weight) else self.get_buffer(source)
            for source in self.sources
        ]
        scores: Tensor = self.operations(*inputs)[0]
        return scores
