"""What is decided of a process by what it sees of a directory: pure."""

from dataclasses import dataclass

import pytest

from onager.scheduler.policy.place_rules import Admit, Ask, Begin, Make, Refuse, Renew, Tell, View, judged

ID, OTHER, MARK = "0" * 16, "1" * 16, "a.b"


@dataclass(frozen=True)
class Known:
    place_id: str = ID
    generation: int = 5
    generation_before: int = 0


def view(**changes):
    return View(
        **{
            "place": "exchange",
            "path": "/x",
            "host": "h",
            "wanted": ID,
            "id": ID,
            "generation": 5,
            "mark": MARK,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("known", "seen", "has_witness", "decision"),
    [
        # Only the first one makes an id.
        (None, view(wanted="", id="", mark=""), False, Make),
        (None, view(wanted="", id="", mark="", problem="it is not there"), False, Make),
        (None, view(), False, Begin),
        (None, view(problem="it has not answered for 15 s"), False, Make),
        # Where there is an id, it is sent; a directory without it never is the place.
        (Known(), view(wanted="", id="", mark=""), True, Tell),
        (Known(), view(wanted=OTHER, id=OTHER), True, Tell),
        (Known(), view(id="", mark=""), False, Refuse),
        (Known(), view(id="", mark=""), True, Refuse),
        # It looked before it knew the id; another process may have made the directory since.
        (Known(), view(wanted="", id="", problem="it is not there"), False, Tell),
        (Known(), view(problem="it is not there"), False, Refuse),
        # While an admitted process lives, it has to find the mark, whatever the generation.
        (Known(), view(), True, Ask),
        (Known(), view(generation=4), True, Ask),
        # When none does, the generation decides.
        (Known(), view(), False, Renew),
        (Known(), view(generation=4), False, Refuse),
        (Known(), view(generation=6), False, Refuse),
        (Known(), view(generation=0), False, Refuse),
        (Known(generation_before=4), view(generation=4), False, Renew),
        (Known(generation_before=3), view(generation=4), False, Refuse),
        # After a restore, the id alone.
        (Known(generation=0), view(generation=9), False, Renew),
        (Known(generation=0), view(id="", generation=0), False, Refuse),
        # Who may only read leaves no mark.
        (Known(), view(mark=""), True, Admit),
        (Known(), view(mark=""), False, Admit),
        (Known(), view(mark="", generation=4), True, Refuse),
    ],
)
def test_the_decision(known, seen, has_witness, decision):
    assert isinstance(judged(known, seen, has_witness=has_witness), decision)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            view(id="", path="/mnt/x", host="m3"),
            ["/mnt/x on m3", "lacks its id, so its volume is not mounted", "Mount"],
        ),
        (view(problem="it is not there"), ["it is not there", "mount the volume"]),
        (view(generation=2), ["is a copy of the cluster's exchange directory", "generation 2", "5"]),
    ],
)
def test_a_refusal_names_the_machine_and_the_directory_and_says_what_to_do(seen, words):
    refused = judged(Known(), seen, has_witness=False)
    assert isinstance(refused, Refuse)
    assert all(word in refused.why for word in words)
    assert "create" not in refused.why
