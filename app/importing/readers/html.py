"""Web pages as Markdown, which is how models write.

Everything is kept except menus and what surrounds the content. Extractors that choose a main part
lose more: on 40 pages such as people save, the best lost a tenth of the sentences (other posts of a
thread, comments, headers).
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING

from app.importing.encodings import BYTE_ORDER_MARKS, decode
from app.importing.import_file import (
    MAX_TEXT_BYTES,
    NO_TEXT,
    FormatReader,
    ImportFile,
    Outcome,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*+<(?:!doctype\s+html|html[\s>])",
    re.IGNORECASE | re.DOTALL,
)

_DECLARED = re.compile(
    rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([^\s"'/>;]+)|<\?xml\b[^>]*?encoding=["']([^"']+)""",
    re.IGNORECASE,
)
_DECLARED_WITHIN_BYTES = 2**14
"""Browsers search the first 1024 bytes; saved pages have scripts before the declaration."""

MIN_UTF8_LETTERS = 3
"""This many non-ASCII letters are hardly valid UTF-8 by coincidence."""

_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
"""Declared encoding → the one that browsers use (WHATWG Encoding Standard), by Python's names. A
declaration that can be read as ASCII is not in UTF-16."""

_NEVER_TEXT = (
    "script", "style", "svg", "iframe", "object", "canvas", "select", "datalist", "title",
)  # fmt: skip
_MENU_ROLES = ("navigation", "search", "menu", "menubar")
_CONTENT = ("main", "article")
_SURROUNDINGS = ("header", "footer", "aside")
_SURROUNDING_ROLES = ("banner", "contentinfo", "complementary")
_MENU_NAME = re.compile(
    r"(?:^|[-_\s])(?:nav|navbar|navigation|menu|side|sidebar\w*|breadcrumbs?|toc|toctree|related"
    r"|recommended|share|sharing|social|footer|promo)(?:$|[-_\s])",
    re.IGNORECASE,
)
"""Classes and ids of menus, if most of the text in them is links."""
MENU_LINK_SHARE = 0.6
SURROUNDING_LINK_SHARE = 0.5
MIN_SURROUNDING_CHARACTERS = 200
"""Text around the content that is worth keeping; less is an imprint or an advertisement."""

_PREFORMATTED = ("pre", "textarea", "xmp", "listing", "plaintext")
_CODE_CELL = re.compile(r"\b(?:blob-code|js-file-line|code-line)\b")
"""Classes of a cell with one line of code, in a table that shows a file."""
_CODE_LINES = re.compile(r"(?:^|\s)code(?:$|\s)")
"""Class of a cell with all lines of a code block."""
_LINE_NUMBERS = re.compile(r"line-?no|line-?num|gutter|blob-num|\blnt?\b", re.IGNORECASE)
_SKIP_LINK = re.compile(r"skip to (?:the )?(?:main )?(?:content|navigation|search)", re.IGNORECASE)
_COPY = re.compile(r"copy\b", re.IGNORECASE)
"""Label of the button next to a code block."""
_FAR = re.compile(r"\s*(?:https?|ftp|mailto):", re.IGNORECASE)
"""Absolute links, which also work from a saved page."""
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight-source|brush:)[- ]\s*([a-z][\w+#-]*)")
_BLOCKS = ("table", "ul", "ol", "dl", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6")
_TABLE_PARTS = ("thead", "tbody", "tfoot", "tr", "td", "th", "caption")
_LINE_BREAK = re.compile(r"<br\s*>", re.IGNORECASE)
_UNKNOWN_SECTION = re.compile(r"<!\[(?!\s*(?:CDATA\[|if\b|else\b|endif\b))", re.IGNORECASE)
"""Start of a marked section that Python's parser rejects."""
_BLANKS = re.compile(r"[ \t]{2,}")
_PLACE = re.compile("\ue000(\\d+)\ue001")
"""Placeholder of preformatted text during conversion, in private-use characters."""


def _claims(file: ImportFile) -> bool:
    named = file.suffix in (".html", ".htm", ".xhtml")
    return named or _HTML_START.match(file.head.removeprefix(b"\xef\xbb\xbf")) is not None


def _read(file: ImportFile) -> Iterator[Outcome]:
    text = html_text(file.read(MAX_TEXT_BYTES))
    if not text.strip():
        raise InputError(NO_TEXT)
    yield Document(file.name, (Part(NOTES, text),))


HTML = FormatReader("HTML", _claims, _read, MAX_TEXT_BYTES)


def html_text(content: bytes) -> str:
    """The page as Markdown, with its title as a heading if it has none.

    A page without other content yields its menus and its `noscript` text.

    Raises:
        InputError: it is not text.
    """
    warnings.simplefilter("ignore")
    source = _decoded(content).replace("\ue000", "").replace("\ue001", "")
    return _converted(source, menus=False) or _converted(source, menus=True)


def _converted(source: str, menus: bool) -> str:
    from bs4 import BeautifulSoup
    from bs4.exceptions import ParserRejectedMarkup

    # At each end tag, Beautiful Soup scans all unclosed `<br>` before it.
    source = _UNKNOWN_SECTION.sub("&lt;![", _LINE_BREAK.sub("<br/>", source))
    try:
        page = BeautifulSoup(source, "html.parser")
    except ParserRejectedMarkup as error:
        raise InputError("damaged HTML") from error
    title = page.title.get_text(" ", strip=True) if page.title else ""
    if not menus:
        _remove(_named(page, ("noscript",)))
    _remove_hidden(page)
    if not menus:
        _remove_menus(page)
    blocks = _take_preformatted(page)
    _unwrap_layouts(page)
    _join_blanks(page)
    text = _markdown(page)
    if text and title and title not in text and not page.find("h1"):
        text = f"# {title}\n\n{text}"
    return _PLACE.sub(lambda match: blocks.get(match[0], ""), text).strip()


_NOT_OF_PAGES = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
"""Encodings that Python knows and browsers do not; some decode slowly."""


def _decoded(content: bytes) -> str:
    """A page's text, in the encoding that browsers would choose."""
    if content.startswith(tuple(BYTE_ORDER_MARKS)):
        return decode(content)[0]
    match = _DECLARED.search(content[:_DECLARED_WITHIN_BYTES])
    label = (match[1] or match[2]).decode("ascii", "replace") if match else "utf-8"
    name = _declared_name(label)
    encoding = _MEANT.get(name, name)
    try:
        # Declarations are often outdated: valid UTF-8 is UTF-8, unless by coincidence.
        text = content.decode("utf-8", "replace")
        foreign = sum(not character.isascii() for character in text)
        if "\ufffd" not in text and (encoding == "cp1252" or foreign >= MIN_UTF8_LETTERS):
            return text
        return content.decode("utf-8" if encoding == "cp1252" else encoding)
    except UnicodeDecodeError:
        if encoding == "utf-8":  # no declaration, or a wrong one
            return decode(content)[0]
        return content.decode(encoding, "replace")


def _declared_name(label: str) -> str:
    """Python's name of the encoding that a page declares; UTF-8 if that is impossible, such as
    EBCDIC or UTF-32 declared in ASCII letters."""
    try:
        name = codecs.lookup(label).name
        possible = name not in _NOT_OF_PAGES and b"<meta>".decode(label) == "<meta>"
    except (LookupError, ValueError):  # unknown, invalid, or not a text encoding
        return "utf-8"
    return name if possible else "utf-8"


def _remove_hidden(page: BeautifulSoup) -> None:
    """Remove what browsers do not show as text, and the targets of relative links."""
    from bs4 import BeautifulSoup
    from bs4.element import Declaration, ProcessingInstruction

    for node in list(page.descendants):
        if isinstance(node, Declaration | ProcessingInstruction):
            node.extract()
    for frame in _named(page, ("iframe",)):
        if frame.get("srcdoc"):
            frame.replace_with(BeautifulSoup(str(frame["srcdoc"]), "html.parser"))
    _remove(_named(page, _NEVER_TEXT))
    # In saved pages, templates with this attribute hold the content of components.
    _remove(one for one in _named(page, ("template",)) if not one.get("shadowrootmode"))
    _write_formulas(page)
    for link in _named(page, ("a",)):
        if not _FAR.match(str(link.get("href", ""))):
            del link["href"]


def _write_formulas(page: BeautifulSoup) -> None:
    """Replace formulas by their TeX source, where the page has it."""
    _remove(_all(page, lambda one: "katex-html" in _names(one)))  # a visual duplicate
    for formula in _named(page, ("math",)):
        for source in _named(formula, ("annotation",)):
            if "tex" in str(source.get("encoding", "")):
                mark = "$$" if formula.get("display") == "block" else "$"
                formula.replace_with(f"{mark}{source.get_text().strip()}{mark}")
                break


def _remove_menus(page: BeautifulSoup) -> None:
    """Remove menus, line numbers, anchor marks, and what surrounds the content."""
    _remove(_all(page, lambda one: one.name == "nav" or one.get("role") in _MENU_ROLES))
    _remove(_all(page, _is_mark))
    content = _all(page, _is_content)
    inside = sum(_length(one) for one in content if not _is_in_content(one))
    structured = inside > _length(page) / 2
    for one in _all(page, _stands_around):
        if not one.decomposed and _is_surrounding(one, structured):
            one.decompose()
    if _length(page) * (1 - _link_share(page)) < MIN_SURROUNDING_CHARACTERS:
        return  # a page of links
    for one in _all(page, _is_named_menu):
        if not one.decomposed and not _is_in_content(one) and _link_share(one) > MENU_LINK_SHARE:
            one.decompose()


def _all(element: Tag, condition: Callable[[Tag], bool]) -> list[Tag]:
    """The descendants for which `condition` is true; `find_all` takes twice as long."""
    from bs4 import Tag

    return [one for one in element.descendants if isinstance(one, Tag) and condition(one)]


def _named(element: Tag, names: Container[str]) -> list[Tag]:
    return _all(element, lambda one: one.name in names)


def _remove(elements: Iterable[Tag]) -> None:
    for one in elements:
        if not one.decomposed:
            one.decompose()


def _is_mark(element: Tag) -> bool:
    """Whether this is a line number of code, a copy button, or the mark of an anchor."""
    if element.name == "a":
        text = element.get_text().strip()
        return text in ("¶", "#", "§") or _SKIP_LINK.match(text) is not None
    if element.name == "button":
        return _COPY.match(str(element.get("aria-label") or element.get_text().strip())) is not None
    numbers = _LINE_NUMBERS.search(_names(element)) is not None
    return numbers and not element.get_text().strip("0123456789 \n")


def _stands_around(element: Tag) -> bool:
    return element.name in _SURROUNDINGS or element.get("role") in _SURROUNDING_ROLES


def _is_surrounding(element: Tag, structured: bool) -> bool:
    """Whether a header, footer or aside belongs to the site and not to the content.

    Within an article it is content.

    Args:
        structured: whether most of the page is within articles.
    """
    if _is_in_content(element) or _all(element, _is_content):
        return False
    links = _link_share(element)
    own = _length(element) * (1 - links)
    if own and _named(element, ("h1",)):
        return False
    short = structured and element.name != "aside" and own < MIN_SURROUNDING_CHARACTERS
    return links > SURROUNDING_LINK_SHARE or short


def _is_named_menu(element: Tag) -> bool:
    return _MENU_NAME.search(_names(element)) is not None and not _all(element, _is_content)


def _names(element: Tag) -> str:
    return " ".join(map(str, (*element.get_attribute_list("class"), element.get("id"))))


def _is_content(element: Tag) -> bool:
    return element.name in _CONTENT or element.get("role") == "main"


def _is_in_content(element: Tag) -> bool:
    return any(map(_is_content, element.parents))


def _length(element: Tag) -> int:
    """Characters of the element's text, with runs of whitespace counted once."""
    return len(" ".join(element.get_text(" ").split()))


def _link_share(element: Tag) -> float:
    """Share of the element's text that is in links; 1 if it has no text."""
    length = _length(element)
    return sum(map(_length, _named(element, ("a",)))) / length if length else 1.0


def _take_preformatted(page: BeautifulSoup) -> dict[str, str]:
    """Replace preformatted text by placeholders; returns placeholder → fenced text."""
    blocks: dict[str, str] = {}
    for one in _all(page, _is_preformatted):
        if one.decomposed or one.find_parent(_PREFORMATTED):
            continue
        text = _preformatted(one)
        ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        place = f"\ue000{len(blocks)}\ue001"
        blocks[place] = f"{ticks}{_language(one)}\n{text}\n{ticks}" if text.strip() else ""
        paragraph = page.new_tag("p")
        paragraph.string = place
        one.replace_with(paragraph)
    return blocks


def _is_preformatted(element: Tag) -> bool:
    if element.name in _PREFORMATTED or _code_cells(element):
        return True
    if element.name != "td" or not _CODE_LINES.search(_names(element)):
        return False
    in_code = sum(map(_length, _named(element, ("code",))))
    return not _named(element, ("pre",)) and 2 * in_code > _length(element)


def _preformatted(element: Tag) -> str:
    """The text with `\\n` line ends, however the page separates lines: `br`, blocks or cells."""
    if cells := _code_cells(element):
        return "\n".join(cell.get_text().strip("\n") for cell in cells)
    _remove(_named(element, ("button",)))
    for line_end in _named(element, ("br",)):
        line_end.replace_with("\n")
    for line in _named(element, ("div", "p", "tr", "li")):
        if not line.get_text().endswith("\n"):
            line.append("\n")
    return element.get_text().replace("\xa0", " ").strip("\n")


def _code_cells(table: Tag) -> list[Tag]:
    cells = _named(table, ("td",)) if table.name == "table" else []
    return [cell for cell in cells if _CODE_CELL.search(_names(cell))]


def _language(element: Tag) -> str:
    """The programming language named by a class of the element, its code or its parent."""
    for one in (element, element.find("code"), element.parent):
        if one is not None and (match := _LANGUAGE.search(_names(one))):
            return match[1]
    return ""


def _unwrap_layouts(page: BeautifulSoup) -> None:
    """Turn tables with multi-line cells into blocks: Markdown has no such tables."""
    layouts = [table for table in _named(page, ("table",)) if _is_layout(table)]
    kept = {id(table) for table in layouts}
    parts = [part for part in _named(page, _TABLE_PARTS) if id(part.find_parent("table")) in kept]
    for one in (*layouts, *parts):
        one.name = "div"


def _join_blanks(page: BeautifulSoup) -> None:
    """Collapse blanks outside preformatted text: the converter takes time quadratic in their
    number."""
    for text in page.find_all(string=_BLANKS):
        text.replace_with(type(text)(_BLANKS.sub(" ", text)))


def _is_layout(table: Tag) -> bool:
    return bool(_named(table, _BLOCKS)) or any(map(_has_lines, _named(table, ("td", "th"))))


def _has_lines(cell: Tag) -> bool:
    return len(_named(cell, ("p", "br", "div"))) > 1 or _PLACE.search(cell.get_text()) is not None


def _markdown(page: BeautifulSoup) -> str:
    from markdownify import MarkdownConverter

    converter = MarkdownConverter(
        heading_style="ATX",
        strip=["img"],
        # `my\\_name` would be another word than `my_name` for readers and search.
        escape_asterisks=False,
        escape_underscores=False,
        escape_misc=False,
    )
    try:
        text = str(converter.convert_soup(page))
    except RecursionError:
        text = page.get_text("\n", strip=True)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()
