"""How the names of a backend's are exposed."""

from perdure.gateway.backends import Naming


def test_a_name_goes_there_and_back() -> None:
    for naming in (Naming(), Naming("it_"), Naming(mapped={"ours": "read"})):
        exposed = naming.exposed("read")
        assert exposed is not None
        assert naming.theirs(exposed) == "read"
    assert Naming("it_").theirs("read") is None
    assert Naming(mapped={"ours": "read"}).exposed("write") is None
    assert Naming(mapped={"ours": "read"}).theirs("read") is None
