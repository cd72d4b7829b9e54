"""The label, colour, letter and texture of each draft origin.

Letters and textures repeat the colours for people who cannot tell the colours apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.draft_tree import (
    CHATS,
    CODE,
    DENSE,
    DRAFT_MODEL,
    HEAD,
    MTP,
    NOTES,
    ORIGIN_NAMES,
    PROGRAMS,
    PROMPT,
    RECYCLE,
)

MODEL = ""
"""Origin name of words that no drafter proposed: the model itself."""


@dataclass(frozen=True, slots=True)
class OriginLabel:
    """How one origin is shown.

    Attributes:
        name: stable name in reports; `MODEL` for the model itself.
        label: name for people, at most 16 characters.
        meaning: one line for the help screen.
        letter: unique letter.
        small: the same letter as a superscript, shown before a word.
        texture: character that fills its bars.
        dark, light: colour on a dark and on a light background.
    """

    name: str
    label: str
    meaning: str
    letter: str
    small: str
    texture: str
    dark: str
    light: str

    def color(self, *, dark: bool) -> str:
        """The colour on a dark or a light background."""
        return self.dark if dark else self.light


ORIGINS: dict[int, OriginLabel] = {
    PROMPT: OriginLabel(
        ORIGIN_NAMES[PROMPT],
        "this chat",
        "words from earlier in this chat and from the files it reads",
        "T",
        "ᵀ",
        "▒",
        "#6cb6ff",
        "#0b62b8",
    ),
    CHATS: OriginLabel(
        ORIGIN_NAMES[CHATS],
        "past chats",
        "words the model wrote in your other chats",
        "P",
        "ᴾ",
        "▓",
        "#f0a45d",
        "#b35900",
    ),
    NOTES: OriginLabel(
        ORIGIN_NAMES[NOTES],
        "notes",
        "words from notes and documents you imported",
        "N",
        "ᴺ",
        "░",
        "#e3cf65",
        "#7d6a00",
    ),
    CODE: OriginLabel(
        ORIGIN_NAMES[CODE],
        "code",
        "words from source code you imported",
        "C",
        "ᶜ",
        "█",
        "#c79bf2",
        "#7a3fb5",
    ),
    PROGRAMS: OriginLabel(
        ORIGIN_NAMES[PROGRAMS],
        "programs",
        "words the model wrote for your editors, agents and scripts",
        "A",
        "ᴬ",
        "▙",
        "#b9c96a",
        "#4f6b00",
    ),
    DENSE: OriginLabel(
        ORIGIN_NAMES[DENSE],
        "similar contexts",
        "what the model wrote when its state was similar",
        "S",
        "ˢ",
        "▚",
        "#ef7d7d",
        "#b3261e",
    ),
    DRAFT_MODEL: OriginLabel(
        ORIGIN_NAMES[DRAFT_MODEL],
        "draft model",
        "words guessed by a small model trained on this one's answers",
        "M",
        "ᴹ",
        "▞",
        "#6fd19c",
        "#11723d",
    ),
    RECYCLE: OriginLabel(
        ORIGIN_NAMES[RECYCLE],
        "common phrases",
        "words this model often writes next",
        "H",
        "ᴴ",
        "▄",
        "#9fb0c9",
        "#51627d",
    ),
    MTP: OriginLabel(
        ORIGIN_NAMES[MTP],
        "prediction heads",
        "words guessed by prediction heads that came with the model",
        "G",
        "ᴳ",
        "▀",
        "#ee8fc4",
        "#9c2f73",
    ),
    HEAD: OriginLabel(
        ORIGIN_NAMES[HEAD],
        "draft head",
        "words guessed from the model's own state by a small network trained on it",
        "D",
        "ᴰ",
        "▟",
        "#5fcfd0",
        "#0b6e70",
    ),
}
"""Every origin by its bit, in the order in which an accepted token is credited."""

MODEL_LABEL = OriginLabel(
    MODEL,
    "the model itself",
    "words the model wrote without a draft",
    "·",
    "",
    "·",
    "#7d8590",
    "#6a737d",
)
LABELS_BY_NAME: dict[str, OriginLabel] = {origin.name: origin for origin in ORIGINS.values()}
