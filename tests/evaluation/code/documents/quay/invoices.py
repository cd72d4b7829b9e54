"""Prints monthly bills as text that the old line printer takes: 72 columns, Latin-1."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from textwrap import wrap

from . import HARBOUR_CODE

WIDTH = 72
FORM_FEED = "\x0c"


@dataclass(frozen=True)
class BerthBill:
    """One boat's bill for a month."""

    boat: str
    berth: int
    month: date
    cents: int
    remarks: str = ""


def invoice_number(bill: BerthBill, running: int) -> str:
    """Such as `ELY-7/2503/0042-K`; the letter is a check letter."""
    body = f"{HARBOUR_CODE}/{bill.month:%y%m}/{running:04d}"
    return f"{body}-{check_letter(body)}"


def check_letter(body: str) -> str:
    """Digits weighted 3, 7, 1 in turn, modulo 23, as a letter without I, O and Q."""
    letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
    digits = [int(character) for character in body if character.isdigit()]
    total = sum(digit * (3, 7, 1)[place % 3] for place, digit in enumerate(digits))
    return letters[total % len(letters)]


def render(bill: BerthBill, running: int) -> str:
    """A page, ended by a form feed."""
    lines = [
        "PORT ELLERY HARBOUR OFFICE".center(WIDTH),
        "",
        f"Bill {invoice_number(bill, running)}",
        f"Boat {bill.boat}, berth {bill.berth}, {bill.month:%B %Y}",
        f"Amount due {bill.cents / 100:>12.2f}",
        "",
        *wrap(bill.remarks, WIDTH),
    ]
    return "\n".join(lines) + FORM_FEED


def for_printer(page: str) -> bytes:
    """Latin-1 bytes; characters that it lacks become their nearest relatives or a question mark."""
    nearest = str.maketrans({"–": "-", "’": "'", "€": "EUR", "ł": "l", "ő": "ö"})
    return page.translate(nearest).encode("latin-1", "replace")
