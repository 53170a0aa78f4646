"""Conversion of PyTorch modules to Keras models that compute the same.

`torch.export` returns the module's graph of ATen ops. Each op has a TensorFlow function here, so TensorFlow computes
the gradients, and the lowering produces the training step. PyTorch is imported only if a module is given.
"""
