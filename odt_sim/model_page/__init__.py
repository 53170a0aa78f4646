"""One self-contained page of a `.tflite` file: signatures, graphs, weights."""
