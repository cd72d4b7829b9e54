#!/bin/bash
# Collects from both gauges, one after the other, because they share the adapter in the north hut.
# Cron runs this every six minutes; a run that is still going makes the next one leave at once.

set -euo pipefail

lock=/run/lock/quay-collect

exec 9> "$lock"
if ! flock --nonblock 9; then
    logger -t quay "still collecting, skipped"
    exit 0
fi

collect() {
    local gauge=$1 port=$2
    if [[ ! -c $port ]]; then
        logger -t quay -p user.err "$gauge: no device $port"
        return 1
    fi
    stty -F "$port" raw -echo
    timeout 110 python3 -m quay collect --gauge "$gauge" --port "$port"
}

# The adapter hangs after a brown-out; switching its hub port off and on wakes it.
power_cycle() {
    uhubctl --location 1-1.4 --action cycle --delay 9
    sleep 4
}

failed=0
collect north /dev/ttyS4 || failed=1
collect south /dev/ttyUSB1 || { power_cycle; collect south /dev/ttyUSB1; } || failed=1
exit "$failed"
