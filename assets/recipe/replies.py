"""What the model says: the form of every answer, in one place.

An answer names the command first, then the task in the page's words, then the command in a fence:
each part narrows down the next, and with the page in the notes the last two are one stretch of
copying.
"""

from collections.abc import Sequence

from assets.recipe.pages import Example, Page

UNKNOWN = "I do not know a command for it."
"""What follows where neither the notes nor memory have an answer."""

OUTSIDE = (
    "I am a command-line helper and do not know about that. "
    "Ask me how to do something in a terminal."
)


def use(name: str, what: str, command: str) -> str:
    """The answer to "how do I ..."."""
    return f"Use `{name}`. {_sentence(what)}:\n\n```sh\n{command}\n```"


def define(page: Page) -> str:
    """The answer to "what is ..."."""
    return f"`{page.name}`: {page.summary}"


def explain(name: str, example: Example) -> str:
    """The answer to "what does this do"."""
    return f"It uses `{name}`. {_sentence(example.plain)}."


def examples(page: Page, chosen: Sequence[Example]) -> str:
    """The answer to "show examples of ..."."""
    blocks = [f"Examples of `{page.name}`."]
    blocks += [f"{each.plain}:\n\n```sh\n{each.command}\n```" for each in chosen]
    return "\n\n".join(blocks)


def unknown(name: str) -> str:
    """The answer about a command the model never met and has no notes on."""
    return f"I do not know `{name}`. Put its documentation in the notes and ask again."


def _sentence(what: str) -> str:
    return what.rstrip(":.")
