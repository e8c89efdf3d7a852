# Finish /bertline in an image: what is written goes to /data, and the rest belongs to root and can be read by all.
set -eu
for name in benchmarks logs mlartifacts mlflow.db resources results .snakemake texts; do
    ln -s "/data/$name" "$name"
done
# A container with a read-only root cannot store what Python compiles.
.venv/bin/python -m compileall -q src workflow/scripts
rm deploy/containers/remove_test_tools.py deploy/containers/finish.sh
# The checkout's files may be its owner's alone; pip's are readable by all.
find . -path ./.venv -prune -o ! -type l -exec chmod u+rwX,go+rX,go-w {} +
# Last: for make, set-up is newer than what it was made from.
touch .venv/ready
