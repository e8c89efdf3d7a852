#!/usr/bin/env bash
# Copy the checkout of an image to a folder on a volume, for the whole graph (docs/kubernetes.md):
#     bash /bertline/deploy/kubernetes/copy_checkout.sh /project
# Files keep their times: set-up counts as done. Packages stay in the image. What the image links to /data, such as results, is
# left out: in the folder it becomes a folder. A file with your changes stays; the image's version becomes FILE.new beside it. Other
# files that the image no longer has are deleted. If this is interrupted, the next call completes it.
set -euo pipefail
export LC_ALL=C
to=${1:?name the folder}
cd "$(dirname "$0")/../.."
if [ ! -d "$to" ] || [ ! -w "$to" ]; then
    echo "error: $to is not a folder that user $(id -u) can write to" >&2
    exit 1
fi
# Other failures than 1 are of a file system without locks.
exec 9> "$to/.copying.lock"
flock -n 9 || [ $? != 1 ] || {
    echo "error: another copy to $to runs; wait for its end" >&2
    exit 1
}
names=()
for name in * .[!.]*; do
    if [ -e "$name" ] && [ ! -L "$name" ] && [ "$name" != .venv ]; then
        names+=("$name")
    fi
done
copied="$to/.copied.sha256"   # the checksums of the files as the image had them
copying="$to/.copying.sha256" # those of a copy that was interrupted
aside="$to/.copying"          # files are complete before they are moved from here
sums=$(find "${names[@]}" -type f -exec sha256sum {} +)
known=$(cat "$copied" "$copying" - 2> /dev/null <<< "$sums" || true)
files=$(cut -c67- <<< "$known" | sort -u)
# Files of the folder with other contents than any image had.
others=$(cd "$to" && while IFS= read -r file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done <<< "$files" | xargs -0 --no-run-if-empty sha256sum | (grep -vxFf <(echo "$known") || [ $? = 1 ]) | cut -c67-)
mapfile -t changed < <(printf %s "${others:+$others$'\n'}")
rm -rf "$aside"
mkdir "$aside"
tar --create --anchored --no-wildcards "${changed[@]/#/--exclude=}" "${names[@]}" | tar --extract --preserve-permissions --directory "$aside"
echo "$sums" >> "$copying"
# Before the moves, because a file may become a folder, and a folder a file. What is then in the way is a person's.
comm -23 <(echo "$files") <(cut -c67- <<< "$sums" | sort) | comm -23 - <(echo "$others" | sort) | while IFS= read -r file; do
    [ -d "$to/$file" ] || rm -f -- "$to/$file"
    (cd "$to" && rmdir --parents --ignore-fail-on-non-empty -- "$(dirname "$file")" 2> /dev/null) || true
done
find "${names[@]}" -printf '%y %p\n' | while read -r kind path; do
    if [ "$kind" = d ] && [ -e "$to/$path" ] && [ ! -d "$to/$path" ]; then
        echo "error: $to/$path is a file of yours, and a folder in the image; move it away, and repeat" >&2
        exit 1
    fi
    if [ "$kind" != d ] && [ -d "$to/$path" ]; then
        find "$to/$path" -type d -empty -delete # as an interrupted call leaves them
        if [ -d "$to/$path" ]; then
            echo "error: $to/$path is a folder with files of yours, and a file in the image; move it away, and repeat" >&2
            exit 1
        fi
    fi
done
(cd "$aside" && find . -type d) | while IFS= read -r folder; do
    mkdir -p "$to/$folder"
    find "$aside/$folder" -maxdepth 1 ! -type d -exec mv -f --target-directory="$to/$folder" {} +
done
rm -r "$aside"
for file in "${changed[@]}"; do
    if [ -f "$file" ] && ! cmp --quiet "$file" "$to/$file"; then
        cp -a -- "$file" "$to/$file.new"
        echo "$to/$file has your changes and stays; the image's version is $file.new"
    fi
done
echo "$sums" > "$copied.part"
mv "$copied.part" "$copied"
rm "$copying"
ln -sfn "$PWD/.venv" "$to/.venv"
