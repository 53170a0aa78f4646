"""Find out what keeps a `.tflite` file from training, and what would make it train."""
