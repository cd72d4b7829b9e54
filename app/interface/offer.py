"""What the first launch offers in place of the embedded model. Said once, in the empty chat."""

from __future__ import annotations

from app.locations import Locations
from app.models.choosing import first_launch_offer
from datastores.errors import StoreError


def offer(locations: Locations) -> str:
    """One line at the first launch, nothing at any other. Looks into files: for the background.

    In it, `{models}` stands for the key of the models.

    Raises:
        InputError: the settings file is not understood.
        ModelError: a model was taken away while it was looked at.
        StoreError: that it was said cannot be noted.
    """
    if locations.offered.exists():
        return ""
    found = len(first_launch_offer(locations))
    try:
        locations.offered.touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {locations.offered}: {error.strerror}; check its permissions"
        ) from error
    return wording(found)


def wording(found: int) -> str:
    """The offer of so many models."""
    if not found:
        return "{models} fetches a larger one from Hugging Face."
    if found == 1:
        return "{models} offers another one that was found on this machine, or fetches one."
    return f"{{models}} chooses among {found} others that were found on this machine."
