"""The examples of the README and of docs/ run."""

import pytest
from page_helpers import OWN_ENVIRONMENT, PAGES, examples, name_of, python_of

EXAMPLES = list(examples())


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.adapter not in OWN_ENVIRONMENT], ids=lambda e: e.page)
@pytest.mark.slow
def test_the_examples_of_a_page_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example.run()


def test_pages_with_examples_are_found():
    pages = {example.page: example.adapter for example in EXAMPLES}
    assert pages["README.md"] is None
    assert pages["docs/guide.md"] is None
    for adapter in (*OWN_ENVIRONMENT, "implicit"):
        assert pages[f"docs/adapters/{adapter}.md"] == adapter


def test_every_python_block_is_closed_and_counted():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert text.count("```") % 2 == 0, name_of(path)
        assert ("```python" in text) == bool(python_of(text).strip()), name_of(path)


def test_the_readme_is_short():
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 200
