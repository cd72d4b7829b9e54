"""Web pages: nothing that a person saved a page for is lost, and code stays as it is."""

from __future__ import annotations

import html

import pytest

from app.importing.readers.html import html_text
from tests.app.importing.texts import read

SITE = '<header><nav><ul><li><a href="/">Home</a></li></ul></nav></header>'
FOOT = '<footer><a href="/imprint">Imprint</a></footer>'
STORY = "The weir gate was replaced in spring with eleven oak planks, which took three days. " * 3


def _page(body: str, head: str = "") -> str:
    source = f"<!doctype html><meta charset=utf-8>{head}<body>{SITE}{body}{FOOT}"
    return html_text(source.encode())


PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "the posts of a thread": (
        "<div><article><p>How do I caulk a punt?</article><article><p>Use hemp.</article>"
        "<article><p>Wait two days.</article></div>",
        ("How do I caulk a punt?", "Use hemp.", "Wait two days."),
    ),
    "a story behind a teaser": (
        f"<article class=teaser><p>Read also: geese.</p></article><div><h1>The weir</h1>{STORY}",
        ("The weir", STORY.strip()),
    ),
    "an article's own header, aside and footer": (
        f"<main><article><header><h1>Eels</h1><p>By Ada</p></header><p>{STORY}</p>"
        "<aside><p>A heron eats ten.</p></aside><footer><p>First printed in 1999.</p></footer>"
        "</article></main>",
        ("Eels", "By Ada", "A heron eats ten.", "First printed in 1999."),
    ),
    "an aside and a footer of the page": (
        f"<main><p>{STORY}</p></main><aside>Note: the gate sticks.</aside>"
        f"<footer><p>P.S. {STORY}</p></footer>",
        ("Note: the gate sticks.", "P.S. The weir"),
    ),
    "a second main": (
        f"<main><p>Short words first.</p></main><main><p>{STORY}</p></main>",
        ("Short words first.", STORY.strip()),
    ),
    "text beside an empty main": (f"<main id=root></main><p>{STORY}</p>", (STORY.strip(),)),
    "comments after the article": (
        f"<main><article><h1>Eels</h1><p>{STORY}</p></article></main>"
        "<section id=comments><p>I keep two of them.</p></section>",
        ("Eels", "I keep two of them."),
    ),
    "a title in the page's header": (
        "<header><h1>Diary of a keeper</h1><p>Written at night.</p></header><p>Monday.</p>",
        ("Diary of a keeper", "Written at night.", "Monday."),
    ),
    "a table that lays out the page": (
        f"<table><tr><td><h1>Willows</h1></td><td><p>{STORY}</p><p>More.</p></td></tr></table>",
        ("# Willows", f"\n\n{STORY.strip()}\n\nMore."),
    ),
    "a table of data": (
        "<table><tr><th>Rope</th><td>30 m</td></tr><tr><th>Winch</th><td>12 kg</td></tr></table>",
        ("| Rope | 30 m |", "| Winch | 12 kg |"),
    ),
    "a component's content in a saved page": (
        "<x-post><template shadowrootmode=open><p>In the shadow.</p></template></x-post>",
        ("In the shadow.",),
    ),
    "a page within a page": (
        f'<p>{STORY}</p><iframe srcdoc="&lt;p&gt;In the &lt;b&gt;frame.&lt;/b&gt;"></iframe>',
        ("In the **frame.**",),
    ),
    "answers behind buttons": (
        "<details><summary>May I moor?</summary><p>Yes.</p></details>"
        "<button>What is it?</button><div hidden>Five euros.</div>",
        ("May I moor?", "Yes.", "What is it?", "Five euros."),
    ),
}


@pytest.mark.parametrize("kind", PAGES)
def test_text_is_kept(kind: str) -> None:
    body, kept = PAGES[kind]
    text = _page(body)
    assert [part for part in kept if part not in text] == []
    assert not {"Home", "Imprint"} & set(text.split())


def test_menus_beside_the_text_are_left_out() -> None:
    links = "".join(f'<li><a href="/{n}">Chapter {n}</a></li>' for n in range(30))
    related = '<aside><ul><li><a href="/a">Read next</a></li></ul></aside>'
    for menu in (
        f"<div class=sidebar-left><ul>{links}</ul></div>",
        f'<div role="navigation"><ul>{links}</ul></div>',
        f"<td class='menu'>{links}</td>",
        related,
    ):
        assert _page(f"{menu}<h1>Eels</h1><p>{STORY}</p>") == f"# Eels\n\n{STORY.strip()}"


def test_a_page_of_links_keeps_them() -> None:
    links = '<dl><dt><h3>River</h3><dl><p><dt><a href="https://x.org">Knots</a></dl></dl>'
    assert "[Knots](https://x.org)" in html_text(f"<title>Bookmarks</title>{links}".encode())
    assert html_text(b"<nav><ul><li><a href=a>Only a menu</a></ul></nav>") == "* Only a menu"


CODE = "def one():\n\tpass\n\n\n    x_y = `a` * 2  # <b>\n\n\n```\n"


@pytest.mark.parametrize(
    "source",
    [
        f"<pre>{html.escape(CODE)}</pre>",
        f"<pre>\n{html.escape(CODE)}</pre>",
        f"<pre><code class='language-python'>{html.escape(CODE)}</code></pre>",
        "<table><tr><td class=lineno><pre>1\n2</pre></td><td>"
        f"<pre>{html.escape(CODE)}</pre></td></table>",
        f"<textarea>{html.escape(CODE)}</textarea>",
        "<pre>" + html.escape(CODE).replace("\n", "<br>") + "</pre>",
        "<pre><code>"
        + "".join(f"<div>{html.escape(line)}</div>" for line in CODE.splitlines(keepends=True))
        + "</code><button>Copy</button></pre>",
        "<pre>"
        + "".join(f"<span>{html.escape(line)}</span>\n" for line in CODE.splitlines())
        + "</pre>",
        f"<ul><li>Try<pre>{html.escape(CODE)}</pre></li></ul>",
        "<table>"
        + "".join(
            f"<tr>\n<td class=blob-num>1</td><td class='blob-code'>{html.escape(line)}</td></tr>\n"
            for line in CODE.splitlines()
        )
        + "</table>",
        f"<pre>{html.escape(CODE).replace('    ', '&nbsp;&nbsp;&nbsp;&nbsp;')}</pre>",
        "<table><tr><td class=gutter><div>1</div></td><td class='code'>"
        + "".join(f"<div><code>{html.escape(line)}</code></div>" for line in CODE.split("\n"))
        + "</td></tr></table>",
        "<pre>"
        + "".join(f"<b class=ln>1</b><b>{html.escape(x)}\n</b>" for x in CODE.splitlines())
        + "</pre><button>Copy code</button>",
    ],
)
def test_code_is_kept_exactly(source: str) -> None:
    language = "python" if "language-python" in source else ""
    fenced = f"````{language}\n{CODE.strip(chr(10))}\n````"
    text = html_text(f"<!doctype html><meta charset=utf-8><body>{source}<p>after".encode())
    assert fenced in text
    assert text.endswith("\n\nafter")
    assert "Copy" not in text
    assert "1\n2" not in text


def test_links_that_skip_to_the_text_are_left_out() -> None:
    assert _page(f"<a href='#main'>Skip to content</a><p>{STORY}</p>") == STORY.strip()


def test_a_page_for_scripts_alone_says_what_it_says_without() -> None:
    notice = "<noscript><p>The gate is open.</p></noscript>"
    assert html_text(f"<div id=root></div>{notice}".encode()) == "The gate is open."
    assert html_text(f"<p>A page.</p>{notice}".encode()) == "A page."


@pytest.mark.parametrize("label", ["shift_jis", "gbk", "windows-1251", "koi8-r"])
def test_what_is_valid_as_utf8_is_not_what_is_declared(label: str) -> None:
    page = f"<meta charset={label}><p>Größe über den Weg"
    assert html_text(page.encode()) == "Größe über den Weg"
    declared = f"<meta charset={label}><p>ключ по"
    assert html_text(declared.encode(label)) == "ключ по"


def test_blanks_are_joined_where_browsers_join_them() -> None:
    body = "<p>one   two<!-- not   shown --></p><pre>a   b</pre>"
    assert html_text(f"<body>{body}".encode()).split("\n\n") == ["one two", "```\na   b\n```"]


def test_prose_is_not_escaped() -> None:
    prose = r"Set my_var_name to 3 * 4 in C:\new_dir\*.txt, [x] and #1 > ~5"
    assert html_text(f"<p>{html.escape(prose)}".encode()) == prose
    assert html_text(b"<p>a\xee\x80\x800\xee\x80\x81b<pre>x</pre>") == "a0b\n\n```\nx\n```"


def test_formulas_are_the_tex_they_were_made_from() -> None:
    tex = '<annotation encoding="application/x-tex">x_1^2</annotation>'
    drawn = "<math><semantics><msup><mi>x</mi><mn>2</mn></msup>{}</semantics></math>"
    source = (
        f"<p>Let <span class=katex><span class=katex-mathml>{drawn.format(tex)}</span>"
        "<span class=katex-html aria-hidden=true>x2</span></span> and "
        f"{drawn.format('')} be 3.</p>"
    )
    assert html_text(source.encode()) == "Let $x_1^2$ and x2 be 3."


def test_links_within_a_site_lead_nowhere_from_a_saved_page() -> None:
    source = (
        b'<p><a href="/wiki/Eel">Eel</a> <a href="https://x.org/">far</a> <a href="data:,">d</a>'
    )
    assert html_text(source) == "Eel [far](https://x.org/) d"


def test_a_title_that_is_not_in_the_page_becomes_its_heading() -> None:
    assert html_text(b"<title>gate(1)</title><body><p>words") == "# gate(1)\n\nwords"
    assert html_text(b"<title>Site: Gate</title><body><h1>Gate</h1>words") == "# Gate\n\nwords"
    assert html_text(b"<title>empty</title><body>") == ""


def _declared(label: str, body: bytes, form: str = '<meta charset="{}">') -> str:
    return html_text(b"<html><head>" + form.format(label).encode() + b"</head><p>" + body)


@pytest.mark.parametrize("label", ["iso-8859-1", "latin1", "US-ASCII", "windows-1252", "utf-8", ""])
def test_western_pages_are_windows_1252_whatever_they_say(label: str) -> None:
    text = "“Mill” costs 5 €, the keeper’s price – naïve café."
    assert _declared(label, text.encode("cp1252")) == text
    assert _declared(label, text.encode()) == text


@pytest.mark.parametrize(
    ("label", "encoding", "text"),
    [
        ("iso-8859-9", "cp1254", "“şağ” €"),
        ("gb2312", "gb18030", "水闸修好了，用了镕木板。"),
        ("x-sjis", "cp932", "①水門"),
        ("shift_jis", "cp932", "①水門～"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("koi8-r", "koi8-r", "Шлюз"),
        ("windows-1251", "cp1251", "Шлюз"),
        ("utf-16", "utf-8", "Шлюз €"),
        ("iso-2022-jp", "iso-2022-jp", "水門"),
    ],
)
def test_labels_mean_what_browsers_take_them_for(label: str, encoding: str, text: str) -> None:
    for form in (
        "<meta charset={}>",
        "<META HTTP-EQUIV='Content-Type' CONTENT='text/html; charset={}'>",
        "<meta content='text/html;charset={}' http-equiv=content-type>",
        "<script>" + "x" * 5000 + "</script><meta charset='{}'>",
    ):
        assert _declared(label, text.encode(encoding), form) == text
    xml = f'<?xml version="1.0" encoding="{label}"?><html><p>'.encode() + text.encode(encoding)
    assert html_text(xml) == text


@pytest.mark.parametrize(
    "label", ["hex", "idna", "rot13", "unicode_escape", "undefined", "utf-32", "cp037", "\0", "é"]
)
def test_a_label_that_no_page_can_have_counts_as_none(label: str) -> None:
    assert _declared(label, "Größe \\n €".encode()) == "Größe \\n €"


@pytest.mark.parametrize(
    "label", ["hex", "rot13", "zip", "idna", "utf-7", "undefined", "\0", "x" * 99]
)
def test_labels_that_are_no_encoding_of_pages_are_ignored(label: str) -> None:
    assert _declared(label, "Größe +AGE-".encode()) == "Größe +AGE-"


def test_sections_that_the_parser_refuses_are_text() -> None:
    assert html_text(b"<p>a<![C [x]>b<![if !x]>c<![endif]>d") == "a<![C [x]>bcd"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_outweighs_what_is_declared(encoding: str) -> None:
    source = '<html><meta charset="koi8-r"><p>Größe €'
    assert html_text(source.encode(encoding)) == "Größe €"


def test_pages_are_recognised_behind_declarations_and_comments() -> None:
    for start in (
        '<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN">',
        "<!-- saved from url=(0033)https://example.org/?a>b -->\n<html>",
    ):
        (found,), skipped = read("page", f"{start}<p>words".encode())
        assert ([part.text for part in found.parts], skipped) == (["words"], [])
