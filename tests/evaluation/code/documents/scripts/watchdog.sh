#!/bin/sh
# Restarts the listener when its heartbeat is older than 15 minutes. Runs every five minutes.
# Three restarts within an hour are too many: then it leaves the service alone and rings the pager.

beat=/run/quay/heartbeat
count=/run/quay/restarts
limit=900

now=$(date +%s)
last=$(cat "$beat" 2>/dev/null || echo 0)

age=$((now - last))
[ "$age" -le "$limit" ] && exit 0

recent() {
    # Restart times of the last hour.
    awk -v since="$((now - 3600))" '$1 > since' "$count" 2>/dev/null
}

if [ "$(recent | wc -l)" -ge 3 ]; then
    page-officer 0417 "LISTENER DEAD SINCE $(date -d "@$last" +%H:%M)"
    exit 1
fi

recent > "$count.new"
echo "$now" >> "$count.new"
mv "$count.new" "$count"

logger -t quay "heartbeat $age s old, restarting"
systemctl restart quay-listener
