#!/bin/bash
# Rehearses a restore: fetches a random daily copy from the tower, unpacks it, counts rows and
# compares them with the live database. Run by hand each quarter; write the result on the sheet
# inside the cupboard door.

set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

pick() {
    ssh bellringer@tower 'ls -1 /srv/quay/daily' | shuf -n 1
}

rows() {
    sqlite3 "$1" "SELECT count(*) FROM reading WHERE at < $2"
}

name=$(pick)
day=${name#quay-}
day=${day%.db.zst}
until_seconds=$(date -u -d "$day" +%s)

scp "bellringer@tower:/srv/quay/daily/$name" "$scratch/"
zstd -q -d "$scratch/$name" -o "$scratch/quay.db"

there=$(rows "$scratch/quay.db" "$until_seconds")
here=$(rows /var/lib/quaymaster/quay.db "$until_seconds")

# Thinning deletes old rows, so the copy may have more, but never fewer.
if ((there < here)); then
    echo "DRILL FAILED: $name has $there rows, expected at least $here" >&2
    exit 2
fi
echo "drill of $(date +%F): $name, $there rows, ok"
