"""Which addresses fit a template."""

import pytest

from perdure.gateway.templates import fits


@pytest.mark.parametrize(
    ("uri", "template", "does"),
    [
        ("book://Emma/text", "book://{title}/text", True),
        ("book://Emma", "book://{title}/text", False),
        ("book://index", "book://index", True),
        ("book://index2", "book://index", False),
        ("book://a/b/c", "book://{x}/{y}/c", True),
        ("book://a/c", "book://{x}/{y}/c", False),
        ("ab", "{x}ab{y}ab{z}", False),
        ("abab", "{x}ab{y}ab{z}", True),
        ("aa", "a{x}a", True),
        ("a", "a{x}a", False),
        ("a" * 100_000, "{x}" * 1_000 + "b", False),
        ("anything", "{+path}", True),
    ],
)
def test_an_address_fits_a_template_if_the_text_around_the_braces_is_there_in_its_order(
    uri: str, template: str, does: bool
) -> None:
    assert fits(uri, template) is does
