"""Find out what prevents a `.tflite` file from training, and what would make it train."""
