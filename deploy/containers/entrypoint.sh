#!/bin/sh
# Run a command in /bertline: what it writes goes to /data, a volume, which may be empty.
set -eu
cd /bertline
for folder in benchmarks home logs mlartifacts resources results .snakemake tmp; do
    if ! { mkdir -p "/data/$folder" && [ -w "/data/$folder" ]; } 2> /dev/null; then
        echo "error: user $(id -u) cannot write to /data/$folder; mount a folder that this user may write to (docs/containers.md)" >&2
        exit 1
    fi
done
export HOME=/data/home TMPDIR=/data/tmp
# Apptainer passes on the environment of a cluster's modules, whose packages are not those of the image.
unset PYTHONPATH PYTHONHOME
# The user may be one without a name.
export LOGNAME="${LOGNAME:-bertline}" MLFLOW_TRACKING_URI="${MLFLOW_TRACKING_URI:-sqlite:////data/mlflow.db}"
exec "$@"
