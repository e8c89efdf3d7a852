"""Names of the tags by which MLflow's runs and logged models are found again: docs/tracking.md lists the others."""

# Identity of a run.
FINGERPRINT_TAG = "bertline.fingerprint"
RUN_TAG = "bertline.run"
RECORD_TAG = "bertline.record"
PARENT_TAG = "mlflow.parentRunId"

# Origin of a run: the id of its results, and the machine and project folder, in which copies of results differ.
ORIGIN_TAG = "bertline.origin"
PLACE_TAG = "bertline.place"

# What was sent: as a tag, it is deleted with the run or the database. MLflow's pages hide the prefix `mlflow.`.
SENT_TAG = "mlflow.bertline.sent"

# The description, which people may edit, and the digest of the one that was sent, in the same request.
DESCRIPTION_TAG = "mlflow.note.content"
DESCRIBED_TAG = "mlflow.bertline.described"

# The record, or the MLflow run, that replaced a run.
SUPERSEDED_TAG = "bertline.superseded_by"

# Folder and machine of a training, a dataset, or a logged checkpoint.
PATH_TAG = "bertline.path"
HOST_TAG = "bertline.host"

DATASET_DIGEST_TAG = "bertline.dataset_digest"
# Of a registered version: the logged model that it is of, and the digest of its weights.
MODEL_ID_TAG = "bertline.model_id"
WEIGHTS_TAG = "bertline.weights"
