"""JSON that is no export: settings, package lists, small data. Imported as the text it is."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

from app.importing.encoding import decode
from app.importing.limits import DATA_BYTES
from app.importing.material import Material, Outcome, Reader
from app.importing.records import LINES, require_shallow
from app.importing.walk import CONVERSATIONS
from datastores.documents import CODE, Document, Part
from datastores.errors import InputError


def _claims(material: Material) -> bool:
    return material.suffix in (".json", *LINES)


def _read(material: Material) -> Iterator[Outcome]:
    if CONVERSATIONS.fullmatch(material.filename):
        raise InputError("no export of chats in a known form, or a damaged one")
    content = material.read(DATA_BYTES)
    require_shallow(BytesIO(content))
    yield Document(material.name, (Part(CODE, decode(content)[0]),))


READER = Reader("JSON", _claims, _read, DATA_BYTES)
