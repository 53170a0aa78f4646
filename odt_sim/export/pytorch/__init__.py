"""From a PyTorch module to a Keras model that computes the same.

`torch.export` gives the module's graph of ATen ops. Each op has a function in TensorFlow here, so TensorFlow takes the
gradients, and the lowering takes the training step from there. PyTorch is imported only if a module is given.
"""
