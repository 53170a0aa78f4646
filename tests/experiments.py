"""Overrides that give the task experiments small models, shared by the tests of tasks and of phones."""

EXPORTED = {
    "segmentation": [],
    "tagging": ["data.length=5", "model.build.length=5", "model.metrics=[top_2,precision]"],
    "language": ["data.length=5", "model.build.length=5"],
    "recommendation": ["data.users=5", "model.build.users=5", "model.metrics=[hit_rate_at_3]"],
    "transcription": [],
    "multi_label": [],
    "multi_target": ["model.metrics=[rmse]"],
}
IGNORED = "model.loss={name: SparseCategoricalCrossentropy, from_logits: true, ignore_class: 1}"
