"""Change and write `.tflite` files."""
