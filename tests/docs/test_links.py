"""tools/check_links: no page has a dead link, and a dead link is found."""
import pytest
from conftest import ROOT, script


def test_no_link_is_dead():
    check_links = script("check_links")
    assert list(check_links.findings(check_links.pages())) == []


@pytest.mark.parametrize("link,expected", [("missing.md", "does not exist"), ("README.md#no-such", "has no heading #no-such"),
                                           ("#nowhere", "has no heading"), ("../../outside.md", "leads out of the repository"),
                                           ("picture.svg", "does not exist")])
def test_a_dead_link_is_named_with_its_line(monkeypatch, tmp_path, link, expected):
    check_links = script("check_links")
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("# A `b`, c\n")
    (tmp_path / "page.md").write_text(f"# Page\n\n```\n[in](code.md)\n```\n[good](README.md#a-b-c) `[in](code.md)`\n[bad]({link})\n")
    found = list(check_links.findings([tmp_path / "page.md"]))
    assert len(found) == 1 and found[0].startswith("page.md:7:") and expected in found[0]


def test_every_page_has_its_place_in_the_site(tmp_path):
    make_site = script("make_site")
    pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md",
             *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
    for name in pages:
        make_site.copy_page(ROOT / name, tmp_path)
    text = make_site.navigation(tmp_path)
    for name in pages:
        assert text.count(f": {name}\n") == 1, name


def test_every_picture_of_a_lab_is_on_a_page():
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    nowhere = [picture.name for picture in (ROOT / "docs/lab").glob("*.svg") if f"{picture.name})" not in pages]
    assert not nowhere, "pictures that no page shows"
