"""Traced TensorFlow functions: tracing, inlining, and the functions of users."""
