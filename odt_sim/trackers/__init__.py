"""Where a run's figures go beside its own records: nowhere, TensorBoard, MLflow, W&B, or a class of the user's."""
