#!/bin/bash
# Builds the package, copies it to the harbour computer, switches to it, and goes back if the
# listener does not beat within 40 seconds.

set -euo pipefail

version=$(git describe --tags --exact-match)
host=harbour
root=/opt/quaymaster

git diff --quiet || { echo "uncommitted changes" >&2; exit 1; }

python3 -m build --wheel --outdir dist
scp "dist/quaymaster-${version#v}-py3-none-any.whl" "$host:/tmp/"

previous=$(ssh "$host" readlink "$root/current")

install_there() {
    ssh "$host" "python3 -m venv $root/$version && \
        $root/$version/bin/pip install --no-index /tmp/quaymaster-${version#v}-py3-none-any.whl"
}

switch_to() {
    ssh "$host" "ln -sfn $1 $root/current && sudo systemctl restart quay-listener"
}

beats() {
    local before
    before=$(ssh "$host" cat /run/quay/heartbeat)
    sleep 40
    [[ $(ssh "$host" cat /run/quay/heartbeat) != "$before" ]]
}

install_there
switch_to "$root/$version"
if ! beats; then
    echo "no heartbeat, back to $previous" >&2
    switch_to "$previous"
    exit 1
fi
# Keep the last four releases.
ssh "$host" "cd $root && ls -1dt v* | tail -n +5 | xargs -r rm -rf"
