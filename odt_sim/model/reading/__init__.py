"""Read `.tflite` files: graph, declarations, inputs, verification in a subprocess."""
