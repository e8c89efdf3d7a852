#!/usr/bin/env bash
# Copy the checkout of an image to a folder on a volume, for the whole graph (docs/kubernetes.md):
#     bash /bertline/deploy/kubernetes/copy_checkout.sh /project
# Files keep their times: set-up counts as done. Packages stay in the image. What the image links to /data, such as results, is
# left out: in the folder it becomes a folder. A file with your changes stays; the image's version becomes FILE.new beside it.
set -euo pipefail
to=${1:?name the folder}
cd "$(dirname "$0")/../.."
if [ ! -d "$to" ] || [ ! -w "$to" ]; then
    echo "error: $to is not a folder that user $(id -u) can write to" >&2
    exit 1
fi
names=()
for name in * .[!.]*; do
    if [ -e "$name" ] && [ ! -L "$name" ] && [ "$name" != .venv ]; then
        names+=("$name")
    fi
done
copied="$to/.copied.sha256" # the checksums of the files as the image had them
changed=()
if [ -f "$copied" ]; then
    mapfile -t changed < <(cd "$to" && LC_ALL=C sha256sum --check --quiet "$copied" 2> /dev/null | sed -n 's/: FAILED$//p')
else # files of the folder that were not copied by this script
    while IFS= read -r file; do
        if [ -f "$to/$file" ] && ! cmp --quiet "$file" "$to/$file"; then
            changed+=("$file")
        fi
    done < <(find "${names[@]}" -type f)
fi
tar --create --anchored --no-wildcards "${changed[@]/#/--exclude=}" "${names[@]}" | tar --extract --preserve-permissions --directory "$to"
for file in "${changed[@]}"; do
    if [ -f "$file" ] && ! cmp --quiet "$file" "$to/$file"; then
        cp -a -- "$file" "$to/$file.new"
        echo "$to/$file has your changes and stays; the image's version is $file.new"
    fi
done
find "${names[@]}" -type f -exec sha256sum {} + > "$copied.part"
mv "$copied.part" "$copied"
ln -sfn "$PWD/.venv" "$to/.venv"
