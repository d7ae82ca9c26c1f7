"""A small builder of ONNX graphs: values with arithmetic, so that a rule in a graph reads like its formula."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20  # of both parts: the network, which torch writes, and the rule


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph. Numbers beside it become constants of the graph's integer type."""

    graph: "Graph"
    name: str

    def __add__(self, other: "Operand") -> "Value":
        return self.graph.op("Add", self, other)

    def __sub__(self, other: "Operand") -> "Value":
        return self.graph.op("Sub", self, other)

    def __mod__(self, other: "Operand") -> "Value":
        return self.graph.op("Mod", self, other)

    def below(self, other: "Operand") -> "Value":
        return self.graph.op("Less", self, other)

    def above(self, other: "Operand") -> "Value":
        return self.graph.op("Greater", self, other)

    def equals(self, other: "Operand") -> "Value":
        return self.graph.op("Equal", self, other)


Operand = Value | int | np.ndarray
Body = Callable[[list[Value]], list[Value]]


@dataclass(eq=False)
class Graph:
    """Nodes in the order they run. `integer` is the type that holds every sum of the rule."""

    integer: np.dtype[Any]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)  # no name is used twice, not even inside a body

    def op(self, kind: str, *inputs: Operand, **attributes: Any) -> Value:
        """One more node with one result."""
        names = [self.value(entry).name for entry in inputs]
        result = self.named(f"rule/{kind}_{next(self.numbers)}")
        self.nodes.append(helper.make_node(kind, names, [result.name], **attributes))
        return result

    def value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            return operand
        array = np.asarray(operand, dtype=self.integer) if isinstance(operand, int) else operand
        name = f"rule/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return self.named(name)

    def named(self, name: str) -> Value:
        return Value(self, name)

    def cast(self, value: Value, kind: type[np.generic] | np.dtype[Any]) -> Value:
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def total(self, value: Value, *axes: int) -> Value:
        """Sums along axes."""
        return self.op("ReduceSum", value, np.array(axes), keepdims=0)

    def least(self, value: Value, axis: int) -> Value:
        """The least entry along an axis, which is gone then."""
        return self.op("Squeeze", self._extreme("ArgMin", value, axis), np.array([axis]))

    def most(self, value: Value, axis: int) -> Value:
        """The largest entry along an axis, which stays with length 1."""
        return self._extreme("ArgMax", value, axis)

    def _extreme(self, kind: str, value: Value, axis: int) -> Value:
        """The least or largest entry along an axis, by its index; the axis stays with length 1.

        ReduceMin, ReduceMax, Min and Max of onnxruntime 1.31 are wrong for int64: of two numbers with the same upper 32
        bits they compare the lower ones as if these had a sign, so that 2**31 is less than 5.
        """
        place = self.op(kind, value, axis=axis, keepdims=1, select_last_index=0)
        return self.op("GatherElements", value, place, axis=axis)

    def smaller(self, one: Value, other: Value) -> Value:
        return self.op("Where", one.below(other), one, other)

    def positive(self, value: Value) -> Value:
        """The values above 0, and 0 for the others."""
        return self.op("Where", value.above(0), value, 0)

    def first(self, kind: str, value: Value, axis: int) -> Value:
        """ArgMax or ArgMin along an axis; the first of equals, as everywhere."""
        return self.op(kind, value, axis=axis, keepdims=0, select_last_index=0)

    def wider(self, value: Value, *axes: int) -> Value:
        """With axes of length 1 inserted."""
        return self.op("Unsqueeze", value, np.array(axes))

    def shaped(self, value: Value, *shape: int) -> Value:
        """With another shape; 0 keeps the axis as it is."""
        return self.op("Reshape", value, np.array(shape))

    def for_each(self, stacks: Sequence[Value], run: Body, shape: Sequence[int], results: Sequence[Any]) -> list[Value]:
        """Run a body on each entry of some stacks [b ...] in turn, and stack its results, whose types are given.

        So memory holds what the body needs for one entry at a time.
        """
        outer, self.nodes = self.nodes, []
        names = [f"rule/each_{index}" for index in range(len(stacks))]
        ends = run([self.named(name) for name in names])
        kind = helper.np_dtype_to_tensor_dtype(self.integer)
        body = helper.make_graph(
            self.nodes,
            "body",
            [helper.make_tensor_value_info(name, kind, list(shape)) for name in names],
            [
                helper.make_tensor_value_info(end.name, helper.np_dtype_to_tensor_dtype(np.dtype(result)), [])
                for end, result in zip(ends, results, strict=True)
            ],
        )
        self.nodes = outer
        stacked = [f"{end.name}_of_each" for end in ends]
        self.nodes.append(
            helper.make_node("Scan", [stack.name for stack in stacks], stacked, body=body, num_scan_inputs=len(stacks))
        )
        return [self.named(name) for name in stacked]
