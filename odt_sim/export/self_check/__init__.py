"""The check of every export: the file computes what the model computes that it came from.

`infer`, a training step on a partial batch and one on a full batch run in LiteRT and in Keras, PyTorch or TensorFlow on the
same rows. Outputs, losses, weights and optimizer slots are compared (`agreement`). If they part, the error names the
first layer or op at which they do (`locating`).

| module | content |
|---|---|
| `rows` | rows that fit a model's inputs and targets |
| `file_side` | the exported file, run by LiteRT |
| `keras_side`, `torch_side`, `function_side` | the models that files come from |
| `snapshot`, `traces` | variables set back, and traced functions run, for these |
| `agreement` | the comparison, with a tolerance from the model itself |
| `locating` | the first op at which two runs part |
"""
