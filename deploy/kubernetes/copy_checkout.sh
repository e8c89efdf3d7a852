#!/bin/sh
# Copy the checkout of an image to a folder on a volume, for the whole graph (docs/kubernetes.md):
#     sh /bertline/deploy/kubernetes/copy_checkout.sh /project
# Files keep their times: set-up counts as done. Packages stay in the image. What the image links to /data, such as results, is
# left out: in the folder it becomes a folder.
set -eu
to=${1:?name the folder}
cd "$(dirname "$0")/../.."
if [ ! -d "$to" ] || [ ! -w "$to" ]; then
    echo "error: $to is no folder that user $(id -u) can write to" >&2
    exit 1
fi
for name in * .[!.]*; do
    if [ -e "$name" ] && [ ! -L "$name" ] && [ "$name" != .venv ]; then
        cp -a -- "$name" "$to/"
    fi
done
ln -sfn "$PWD/.venv" "$to/.venv"
