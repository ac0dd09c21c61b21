"""What is typed becomes what the schema wants, and what it can't become is told before anything is called."""

from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool

from perdure.ops.calling import listing, typed
from perdure.ops.calling.answering import accepted, content_for, plain, told
from perdure.ops.calling.arguments import Misfits, arguments, from_file, split
from perdure.ops.calling.hints import Hints
from perdure.ops.calling.typed import Unfit

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"]},
        "title": {"type": "string", "description": "What it is called"},
        "pages": {"type": "integer", "minimum": 1},
        "price": {"type": "number"},
        "draft": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "array", "items": {"$ref": "#/$defs/Count"}},
        "place": {"$ref": "#/$defs/Place"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "few": {"anyOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 9}]},
        "any": {},
    },
    "required": ["title"],
    "$defs": {"Count": {"type": "integer"}, "Place": {"type": "object", "required": ["x"]}},
}


def read(*words: str, **given: Any) -> dict[str, Any]:
    found = arguments(words, {"title": "T", **given}, SCHEMA)
    return {key: value for key, value in found.items() if key != "title"}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("size=large", "large"),
        ("pages=12", 12),
        ("price=12", 12),
        ("price=0.5", 0.5),
        ("draft=yes", True),
        ("draft=false", False),
        ("tags=a", ["a"]),
        ('tags=["a", "b=c"]', ["a", "b=c"]),
        ("counts=3", [3]),
        ('place={"x": 1}', {"x": 1}),
        ("maybe=null", None),
        ("maybe=4", 4),
        ("either=4", "4"),
        ("either:=4", 4),
        ("any=4", "4"),
        ("any:=[4]", [4]),
        ("any=a=b\nc", "a=b\nc"),
        ("any=@@home", "@home"),
    ],
)
def test_a_value_is_read_by_the_type_that_the_schema_gives_it(word: str, value: object) -> None:
    (found,) = read(word).values()
    assert (found, type(found)) == (value, type(value))


def test_a_list_may_be_said_item_by_item_and_words_count_more_than_the_file() -> None:
    assert read("tags=a", "tags=b", tags=["of the file"]) == {"tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("pages=many", "pages: it must be a whole number"),
        ("pages=0", "pages: it must be at least 1"),
        ("pages=1_0", "pages: it must be a whole number"),
        ("price=inf", "price: it must be a number"),
        ("draft=perhaps", "draft: it must be yes or no"),
        ("size=huge", "size: it must be one of small, large"),
        ("place=here", "place: it must be an object in JSON"),
        ("place={}", "place: it needs x"),
        ("maybe=x", "maybe: it must be null or a whole number"),
        ("day=x", "day: it must be a valid date"),
        ("few:=7", "few: it must be at most 3 or at least 9"),
        ("few:=[]", "few: it must be a whole number"),
        ("page=1", "page: the tool has no such argument; did you mean pages?"),
        ("any:=nope", "any: it is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (r'any:=["\ud800"]', "any: it has text in it that is none: half of a surrogate pair"),
        ("any:=NaN", "any: it is no JSON: NaN is no JSON"),
        ("nothing", "'nothing' is no KEY=VALUE"),
        ("any=\udcff", r"'any=\udcff' is no UTF-8"),
        ("any=@/no/such/file", "any: /no/such/file can't be read: No such file or directory"),
    ],
)
def test_what_does_not_fit_is_told_with_the_reason(word: str, reason: str) -> None:
    with pytest.raises(Misfits) as error:
        read(word)
    assert error.value.lines == (reason,)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Misfits) as error:
        arguments(["size=huge", "unheard=1"], {}, SCHEMA)
    known = "size, title, pages, price, draft, tags, counts, place, maybe, either, day, few, any"
    assert error.value.lines == (
        f"unheard: the tool has no such argument; there are: {known}",
        "title: it is needed (What it is called)",
        "size: it must be one of small, large",
    )
    with pytest.raises(Misfits, match="draft: it is there twice"):
        arguments(["draft=yes", "draft=no"], {}, SCHEMA)


def test_a_file_may_hold_a_value_or_all_arguments(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text('{"x": [1]}')
    assert read(f"place=@{file}") == read(f"place:=@{file}") == {"place": {"x": [1]}}
    assert from_file(str(file)) == {"x": [1]}
    file.write_text("[]")
    with pytest.raises(Unfit, match=f"^--arguments {file}: it is no JSON object"):
        from_file(str(file))
    file.write_text("{")
    with pytest.raises(Unfit, match=f"^--arguments {file}: it is no JSON: "):
        from_file(str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(Unfit, match="no text in UTF-8"):
        split(f"any=@{file}")


def test_a_tool_that_takes_anything_gets_it() -> None:
    assert arguments(["a=1", "b:=1"], {}, {"type": "object", "additionalProperties": True}) == {"a": "1", "b": 1}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}},
        {"properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        {"properties": {"a": {"type": "no such type"}}},
        {"properties": {"a": {"type": 7, "minimum": "x"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_is_none_judges_nothing_and_nothing_is_fetched(schema: dict[str, Any]) -> None:
    assert arguments(["a:=1"], {}, schema) == {"a": 1}


BOMB = {"anyOf": [{"$ref": "#/$defs/x"}] * 30}


def chain(length: int, **more: Any) -> dict[str, Any]:
    """A schema that leads to its end in 30 to the power of `length` ways."""
    links = {f"x{place}": {"anyOf": [{"$ref": f"#/$defs/x{place + 1}"}] * 30, **more} for place in range(length)}
    return {**links, f"x{length}": {"type": "integer", **more}}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "definitions",
    [
        {"x": BOMB},
        {"x": {"$ref": "#/$defs/x0"}, **chain(8)},
        {"x": {"$ref": "#/$defs/x0"}, **chain(8, **{"$schema": "http://json-schema.org/draft-07/schema#"})},
    ],
    ids=["without an end", "with one", "in a dialect of its own"],
)
def test_a_schema_that_nobody_has_time_for_judges_nothing(definitions: dict[str, Any]) -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": definitions}
    assert arguments(['a:="x"'], {}, schema) == {"a": "x"}
    assert typed.kinds({"$ref": "#/$defs/x"}, schema) <= {"integer"}


def test_a_list_of_lists_without_end_is_said_in_json() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}}
    with pytest.raises(Misfits, match="a: it must be a list in JSON"):
        arguments(["a=x"], {}, schema)
    assert arguments(["a=[[]]"], {}, schema) == {"a": [[]]}


def test_what_a_tool_needs_is_read_as_far_as_it_is_a_name() -> None:
    assert arguments(["a:=1"], {}, {"properties": {"a": {}}, "required": [{"a": 1}, 7, ["b"]]}) == {"a": 1}


QUESTIONS: dict[str, Any] = {
    "who": {
        "method": "elicitation/create",
        "params": {
            "message": "Who?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
                "required": ["name", "age"],
            },
        },
    },
    "who.else": {
        "method": "elicitation/create",
        "params": {
            "message": "And?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    },
}


def test_several_questions_are_answered_by_their_keys() -> None:
    found = content_for(QUESTIONS, ["who.name=Ada", "who.else.name=Bob"])
    assert found == {"who": {"name": "Ada", "age": 7}, "who.else": {"name": "Bob"}}
    only = {"who": QUESTIONS["who"]}
    assert content_for(only, ["name=", "age=8"]) == {"who": {"name": "", "age": 8}}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["name=Ada"], "say which question: who, who.else"),
        (["who.age=8"], "the question who needs name as well"),
        (["who.nome=Ada"], "has no field 'nome'; there are: name, age"),
        (["who.name=Ada", "who.age=old"], "age: it must be a whole number"),
        (["who.name:={}"], "name: an answer can't carry that"),
    ],
)
def test_an_answer_that_fits_no_question_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(Unfit, match=reason.replace("(", r"\(")):
        content_for(QUESTIONS, words)


def test_who_agrees_to_a_form_as_it_is_takes_its_defaults() -> None:
    assert accepted(QUESTIONS, "who.else") == {}
    with pytest.raises(Unfit, match="the question who needs name as well"):
        accepted(QUESTIONS, "who")


def test_a_choice_that_is_none_is_told_with_those_that_are() -> None:
    colour = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}
    question = {"params": {"message": "Which?", "requestedSchema": {"properties": {"colour": colour}}}}
    with pytest.raises(Unfit, match="colour: 'blue' is none of Red, Green"):
        content_for({"form": question}, ["colour=blue"])
    (told,) = plain({"form": question})
    assert told == {
        "key": "form",
        "message": "Which?",
        "fields": [
            {
                "name": "colour",
                "title": "colour",
                "kind": "choice",
                "required": False,
                "choices": [{"value": "r", "title": "Red"}, {"value": "g", "title": "Green"}],
            }
        ],
    }


def test_a_question_is_told_with_all_of_its_fields() -> None:
    assert list(told("tsk_1", {"who": QUESTIONS["who"]}, Hints(), several=False)) == [
        "? Who?",
        "?   name",
        "?   age  a whole number  else 7",
        "  perdure answer tsk_1 name=… age=…",
        "  perdure answer tsk_1 --decline",
    ]


def test_how_to_answer_can_be_pasted_whatever_a_server_calls_its_questions() -> None:
    evil = {"$(reboot); \x1b[2J": QUESTIONS["who.else"], "b": QUESTIONS["who"]}
    lines = [line for line in told("tsk_1", evil, Hints("my j.db"), several=True) if not line.startswith("?")]
    assert lines[:3] == [
        "  perdure answer --journal 'my j.db' tsk_1 '$(reboot);  [2J.name'=…",
        "  perdure answer --journal 'my j.db' tsk_1 --decline --question '$(reboot);  [2J'",
        "  perdure answer --journal 'my j.db' tsk_1 b.name=… b.age=…",
    ]


def test_no_line_of_a_server_passes_for_a_command_of_ours() -> None:
    evil = "x\n  perdure answer tsk_1; reboot"
    question = {"params": {"message": evil, "url": evil, "requestedSchema": {"properties": {evil: {"title": evil}}}}}
    lines = list(told("tsk_1", {evil: question}, Hints(), several=False))
    ours = [line for line in lines if not line.startswith("? ")]
    assert ours == [
        "  perdure answer tsk_1 'x   perdure answer tsk_1; reboot'=…",
        "  perdure answer tsk_1 --decline",
    ]


@pytest.mark.parametrize(
    ("id", "field", "command"),
    [
        ("-xid", "ok", "perdure answer -- -xid ok=…"),
        ("--json", "ok", "perdure answer -- --json ok=…"),
        ("-x y", "ok", "perdure answer -- '-x y' ok=…"),
        ("tsk_1", "-x", "perdure answer -- tsk_1 -x=…"),
    ],
)
def test_no_name_of_a_server_is_taken_for_an_option(id: str, field: str, command: str) -> None:
    question = {"params": {"message": "?", "requestedSchema": {"properties": {field: {"type": "boolean"}}}}}
    answer, decline = [line for line in told(id, {"form": question}, Hints(), several=False) if line[0] == " "]
    assert answer == f"  {command}"
    assert decline.startswith("  perdure answer --decline -- " if id[0] == "-" else "  perdure answer tsk_1 --decline")
    assert Hints().about("-xid") == "perdure resume -- -xid"


def test_the_kinds_of_a_schema_are_found_through_references() -> None:
    values: list[Any] = ["a", 1, None, True, [], {}]
    assert typed.kinds({"enum": values}, {}) >= {"string", "number", "null", "boolean", "array"}
    assert typed.kinds({"oneOf": [{"const": "a"}, {"$ref": "#/$defs/Count"}]}, SCHEMA) == {"string", "integer"}
    assert typed.kinds({"$ref": "elsewhere"}, SCHEMA) == typed.kinds(True, SCHEMA) == frozenset()


def test_the_list_of_tools_paints_nothing() -> None:
    evil = "x\x1b[2J"
    tool = Tool(name=evil, description=f"{evil}\nmore", input_schema={"properties": {evil: {"description": evil}}})
    assert list(listing.told(tool)) == ["x [2J  x [2J", "  x [2J  anything  x [2J"]


def test_the_list_of_tools_shows_what_each_argument_may_be() -> None:
    tool = Tool(
        name="make",
        input_schema={
            "properties": {
                "size": {"enum": ["s", "l"], "default": "s"},
                "maybe": {"anyOf": [{"enum": ["a", 1]}, {"type": "null"}]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "sizes": {"type": "array", "items": {"$ref": "#/properties/size"}},
                "count": {"type": "integer", "default": 3},
                "many": {"enum": [*range(25)]},
            },
            "required": ["tags"],
        },
    )
    *lines, many = listing.told(tool)
    assert lines == [
        "make",
        '  size  s|l, else "s"',
        "  maybe  a|1|null",
        "  tags  array of string, needed",
        "  sizes  array of s|l",
        "  count  integer, else 3",
    ]
    assert many.endswith("|19|…")
