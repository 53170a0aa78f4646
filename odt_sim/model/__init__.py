"""The trainable artifact and its weights, without TensorFlow."""
