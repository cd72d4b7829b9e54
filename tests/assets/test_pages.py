"""Reading tldr pages and splitting them."""

import tarfile
from pathlib import Path

import pytest

from assets.recipe.pages import parse_page, read_pages, split
from datastores.errors import InputError

TAR = """# tar

> Archiving utility.
> Often combined with `gzip`.
> More information: <https://example.org>.

- E[x]tract an archive:

`tar xf {{path/to/source.tar}}`

- List its contents:

`tar tf {{path/to/source.tar}}`
"""


def test_a_page_is_read_whole() -> None:
    page = parse_page(TAR, "common")
    assert page is not None
    assert (page.name, page.summary) == ("tar", "Archiving utility. Often combined with `gzip`.")
    assert [each.command for each in page.examples] == [
        "tar xf {{path/to/source.tar}}",
        "tar tf {{path/to/source.tar}}",
    ]


def test_mnemonic_brackets_stay_in_the_page_and_leave_the_plain_task() -> None:
    page = parse_page(TAR, "common")
    assert page is not None
    assert page.examples[0].what == "E[x]tract an archive"
    assert page.examples[0].plain == "Extract an archive"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no heading",
        "# x\n\n> This command is an alias of `y`.\n\n- See:\n\n`tldr y`\n",
        "# x\n\n> Does things.\n",
    ],
)
def test_what_cannot_be_asked_about_is_no_page(text: str) -> None:
    assert parse_page(text, "common") is None


def test_a_checkout_and_its_archive_read_the_same(checkout: Path, tmp_path: Path) -> None:
    packed = tmp_path / "pages.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(checkout / "pages", arcname="tldr/pages")
    assert read_pages(packed) == read_pages(checkout)


def test_the_common_page_is_preferred(checkout: Path, tmp_path: Path) -> None:
    for platform, summary in (("windows", "W"), ("common", "C")):
        folder = tmp_path / "pages" / platform
        folder.mkdir(parents=True)
        (folder / "x.md").write_text(f"# x\n\n> {summary}.\n\n- Do:\n\n`x`\n", encoding="utf-8")
    assert [page.summary for page in read_pages(tmp_path)] == ["C."]


def test_a_folder_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tldr checkout"):
        read_pages(tmp_path)


def test_the_parts_of_a_split_share_no_page(checkout: Path) -> None:
    pages = read_pages(checkout)
    parts = split(pages)
    names = [page.name for part in (parts.known, parts.familiar, parts.held_out) for page in part]
    assert sorted(names) == [page.name for page in pages]
    assert {"tar", "git commit"} <= {page.name for page in parts.known}
    assert len(parts.held_out) >= 2
    assert split(reversed(pages)).held_out != ()
