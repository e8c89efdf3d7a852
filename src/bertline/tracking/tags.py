"""Names of the tags by which MLflow's runs and logged models are found again: docs/tracking.md lists the others."""

# Of what a run is: these identify it.
FINGERPRINT_TAG = "bertline.fingerprint"
RUN_TAG = "bertline.run"
RECORD_TAG = "bertline.record"
PARENT_TAG = "mlflow.parentRunId"

# From where a run was sent: the results' own id, and the machine and project folder, in which copies of results differ.
ORIGIN_TAG = "bertline.origin"
PLACE_TAG = "bertline.place"

# What was sent, so that it is deleted with the run or the database. MLflow's pages hide tags with the prefix `mlflow.`.
# The other name is that of earlier versions: such a tag stays, so that their trackers recognise the run.
SENT_TAG = "mlflow.bertline.sent"
OLD_SENT_TAG = "bertline.sent"

# By which record, or by which MLflow run, a run was replaced.
SUPERSEDED_TAG = "bertline.superseded_by"

# Of a training, a dataset, or a logged checkpoint: its folder, and the machine with it.
PATH_TAG = "bertline.path"
HOST_TAG = "bertline.host"

DATASET_DIGEST_TAG = "bertline.dataset_digest"
MODEL_ID_TAG = "bertline.model_id"  # of a registered version: the logged model that it is of
