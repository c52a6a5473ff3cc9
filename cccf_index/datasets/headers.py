"""Which columns hold users, items and ratings: by the names in a header, by position, or as the caller says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cccf_index import _check

ROLES = ("user", "item", "rating")
USERS = "customer reviewer visitor member account client player buyer shopper listener reader subscriber"
ITEMS = (
    "movie product business book artist game track song article anime app stock video recipe beer joke venue poi film "
    "hotel restaurant album podcast course place location content news post show offer listing repo"
)
USER_CODES, ITEM_CODES = "uid", "iid asin isbn isbn10 isbn13 sku ean upc"
SCORES = "score scores star stars overall reviewscore reviewstars reviewoverall userscore grade preference"
COUNTS = (
    "weight weights play plays playcount count counts listens listencount hours hoursplayed playtime playtimeforever "
    "quantity qty clicks views viewcount purchases frequency freq"
)
ID_ENDINGS = ("id", "ids", "idx", "index", "no", "num", "number", "code", "key", "uuid", "hash")
NAME_ENDINGS = ("name", "title")
SHOWN = 6  # columns left out that a description names

POSITION, HEADER, GIVEN = "position", "header", "given"


def _make_names() -> dict[str, tuple[str, int]]:
    """Return the role of each known name and its rank: of two names for users, the one of the lower rank is taken.

    Ids come before plain words and those before titles, so that a file may have "movieId" and "title".
    """
    known: dict[str, tuple[str, int]] = {}
    for role, generic, others, codes in (("user", "user", USERS, USER_CODES), ("item", "item", ITEMS, ITEM_CODES)):
        for word in (generic, *others.split()):
            rank = 0 if word == generic else 1
            known |= {f"{word}{ending}": (role, rank) for ending in ID_ENDINGS} | {f"id{word}": (role, rank)}
            known |= {word: (role, rank + 2), f"{word}s": (role, rank + 2)}
            known |= {f"{word}{ending}": (role, 4) for ending in NAME_ENDINGS}
            known[f"{word}rating"] = ("rating", 1)
        known |= {code: (role, 1) for code in codes.split()}
    known |= {"title": ("item", 5), "parentasin": ("item", 4), "session": ("user", 5), "sessionid": ("user", 5)}
    known |= {"rating": ("rating", 0), "ratings": ("rating", 0)}
    known |= {f"{word}rating": ("rating", 1) for word in ("star", "overall", "review")}
    known |= {name: ("rating", 2) for name in SCORES.split()} | {name: ("rating", 3) for name in COUNTS.split()}
    return known | {"value": ("rating", 4)}


def _simplify(name: str) -> str:
    """Return a name without what people write differently: case, hyphens, underscores, spaces, RecBole's types."""
    return "".join(letter for letter in name.partition(":")[0].casefold() if letter.isalnum())


NAMES = _make_names()


@dataclass(frozen=True)
class Columns:
    """The columns of user, item and, if there is one, rating.

    Parameters
    ----------
    places : tuple of 2 or 3 int
        Their positions, from 0.
    width : int
        How many columns there are.
    names : tuple of str, optional
        The header. None if there is none.
    origin : {"position", "header", "given"}
        How they were chosen.
    """

    places: tuple[int, ...]
    width: int
    names: tuple[str, ...] | None
    origin: str

    def name(self, place: int) -> int | str:
        """Return a column as the argument `columns` takes it."""
        return place if self.names is None or place >= len(self.names) else self.names[place]

    def show(self, place: int) -> str:
        """Return a column as messages show it."""
        name = self.name(place)
        return f'"{name}"' if isinstance(name, str) else f"column {name}"

    def describe(self) -> str:
        """Return one line: which columns were read, and which were left out."""
        parts = [f"{role}s from {self.show(place)}" for role, place in zip(ROLES, self.places, strict=False)]
        if len(self.places) == 2:
            parts.append("no ratings (each line counts as 1)")
        rest = [self.show(place) for place in range(self.width) if place not in self.places]
        more = [f"{len(rest) - SHOWN} more"] if len(rest) > SHOWN else []
        text = ("" if self.names else "no header; ") + ", ".join(parts)
        return text + (f"; left out: {', '.join(rest[:SHOWN] + more)}" if rest else "")


def find_role(name: str) -> str | None:
    """Return what a column of this name holds, "user", "item" or "rating"; None if the name is not known."""
    return NAMES.get(_simplify(name), (None, 0))[0]


def is_number(text: str) -> bool:
    """Return whether text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python allows it between digits


def is_header(first: Sequence[str], second: Sequence[str]) -> bool:
    """Guess whether the first line is a header: known names, or words where the second line has numbers."""
    if any(map(is_number, first)):
        return False
    known = [NAMES[simple] for simple in map(_simplify, first) if simple in NAMES]
    roles = {role for role, _ in known}
    if {"user", "item"} <= roles or any(role != "rating" and rank < 2 for role, rank in known):
        return True
    return any((a[:1].isalpha() or a[:1] == "_") and is_number(b) for a, b in zip(first, second, strict=False))


def match_header(names: Sequence[str], sample: Sequence[str], where: str) -> Columns:
    """Find the columns of user, item and rating by their names.

    A single column that is neither a user nor an item is the rating, whatever its name, if it holds a number in
    `sample`, a line of data, and is not called a time or an id.
    """
    places = [_find_place(role, names, where) for role in ROLES]
    user, item, rating = places
    if user is None or item is None:
        missing = " and ".join(f"{role}s" for role, place in zip(ROLES[:2], places[:2], strict=True) if place is None)
        raise ValueError(
            f"{where}: cannot tell which column holds the {missing}, got the columns {_quote(names)}. "
            "Name the columns of user, item and rating with `columns=`."
        )
    rest = [place for place in range(len(names)) if place not in (user, item)]
    if (
        rating is None
        and len(rest) == 1
        and _may_be_rating(names[rest[0]])
        and is_number("".join(sample[rest[0] :][:1]))
    ):
        rating = rest[0]
    chosen = (user, item) if rating is None else (user, item, rating)
    return Columns(chosen, len(names), tuple(names), HEADER)


def _find_place(role: str, names: Sequence[str], where: str) -> int | None:
    """Return the column whose name stands for this role; None if there is none."""
    ranks = [NAMES.get(_simplify(name), ("", 0)) for name in names]
    best = min((rank for known, rank in ranks if known == role), default=None)
    places = [place for place, found in enumerate(ranks) if found == (role, best)]
    if len(places) > 1:
        raise ValueError(
            f"{where}: {_quote([names[place] for place in places])} may all hold the {role}s, got the columns "
            f"{_quote(names)}. Name the columns of user, item and rating with `columns=`."
        )
    return places[0] if places else None


def _may_be_rating(name: str) -> bool:
    simple = _simplify(name)
    return not ("time" in simple or "date" in simple or simple.endswith("id") or simple in ("", "ts", "day", "year"))


def _quote(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def take_columns(given: Sequence[Any], names: Sequence[str], width: int, has_header: bool, where: str) -> Columns:
    """Return the columns that the caller gave, as positions or as names in the header."""
    wanted = [given] if isinstance(given, str) else list(given)
    if len(wanted) not in (2, 3):
        raise ValueError(f"`columns` must be those of user, item and optionally rating, got {given!r}.")
    places = []
    for column in wanted:
        if isinstance(column, str):
            found = [place for place, name in enumerate(names) if name == column]
            found = found or [place for place, name in enumerate(names) if _simplify(name) == _simplify(column)]
            if not found:
                raise ValueError(f"`columns` must be in the header of {where}, which is {list(names)}, got {column!r}.")
            places.append(found[0])
        else:
            places.append(_check.integer(column, "columns", 0))
    return Columns(tuple(places), width, tuple(names) if has_header else None, GIVEN)


def take_first(width: int, names: Sequence[str] | None) -> Columns:
    """Return the first three columns, or two if there are only two."""
    return Columns(tuple(range(min(3, max(2, width)))), width, None if names is None else tuple(names), POSITION)
