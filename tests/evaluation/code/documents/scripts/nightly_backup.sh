#!/bin/bash
# Copies the database to the box in the church tower and prunes old copies.
# Keeps 21 daily and 18 monthly copies. The tower's box is off from 01:00 to 02:00.

set -euo pipefail

database=/var/lib/quaymaster/quay.db
staging=$(mktemp -d /var/tmp/quay-backup.XXXXXX)
target=bellringer@tower:/srv/quay
trap 'rm -rf "$staging"' EXIT

snapshot() {
    # .backup takes a consistent copy while others write; cp would not.
    sqlite3 "$database" ".timeout 9000" ".backup '$staging/quay.db'"
    sqlite3 "$staging/quay.db" "PRAGMA integrity_check" | grep -qx ok
    zstd -q -12 --rm "$staging/quay.db"
}

ship() {
    rsync --partial --bwlimit=750 "$staging/quay.db.zst" \
        "$target/daily/quay-$(date -u +%F).db.zst"
}

prune() {
    ssh bellringer@tower 'cd /srv/quay/daily && ls -1 | sort | head -n -21 | xargs -r rm --'
    if [[ $(date -u +%d) == 01 ]]; then
        ssh bellringer@tower "cp /srv/quay/daily/quay-$(date -u +%F).db.zst /srv/quay/monthly/"
        ssh bellringer@tower 'cd /srv/quay/monthly && ls -1 | sort | head -n -18 | xargs -r rm --'
    fi
}

snapshot
ship
prune
touch /run/quay/backup-ok
