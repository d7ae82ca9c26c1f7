"""A defense as one ONNX graph: network, rule and certificate."""
