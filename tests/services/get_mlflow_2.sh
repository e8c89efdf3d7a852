#!/bin/sh
# Install MLflow 2.22 into a folder, for the test of servers of version 2.
set -eu
[ -e "$1/ready" ] && exit 0
python -m venv --clear "$1"
"$1/bin/pip" install --quiet mlflow==2.22.1 sqlalchemy==2.0.58
touch "$1/ready"
