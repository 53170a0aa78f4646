"""Trainable `.tflite` files and their weights, without TensorFlow."""
