"""Reads a MovieLens folder: each rating is a sample, whose label is whether the user liked the movie."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from recsmith._random import permutation
from recsmith._types import Ints, noun
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.source import MemorySource, found_beside
from recsmith.errors import CorruptFile, UsageError, check_rules
from recsmith.files import check_is_file, text_lines

RATINGS, MOVIES = ("userId", "movieId", "rating", "timestamp"), ("movieId", "title", "genres")
MOST_STARS, LONGEST_ID = 10, 19  # largest rating; ids have fewer digits than this
NO_GENRE = "(no genres listed)"
SPLITS = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0), "all": (0.0, 1.0)}  # shares of the ratings


@noun
class MovieLensSpec:
    """A MovieLens folder: features user, movie and genres; the label is 1 for ratings of `positive` stars or more.

    split: train is the first 80 % of the ratings, valid the next 10 %, test the last 10 %.
    split_by: the order in which ratings are split: random, drawn from split_seed, or by time. Ratings that are split by
        time are also read in that order.
    max_user_id: ratings of users with a larger id are left out.
    """

    path: str
    split: Literal["train", "valid", "test", "all"] = "train"
    split_by: Literal["random", "time"] = "random"
    split_seed: int = 0
    positive: float = 4.0
    max_user_id: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if 0 <= self.split_seed < 2**63 else f"split_seed is {self.split_seed}; it must be 0 to 2^63 - 1"
        )

    def beside(self, folder: Path) -> "MovieLensSpec":
        """The spec with its path resolved in this folder, if it does not exist in the working directory."""
        return replace(self, path=found_beside(self.path, folder))


class MovieLensSource(MemorySource):
    """The samples of a MovieLens folder; a sample's number is its row in ratings.csv, counted from 0."""

    settings = MovieLensSpec

    def __init__(self, spec: MovieLensSpec) -> None:
        schema, samples, columns, every = _samples_of(spec)
        super().__init__(schema, samples, columns)
        self.part = ""  # which part of the ratings is read, if not all
        if len(samples) < every:
            self.part = f"split {spec.split}: {len(samples):,} of {every:,} ratings; `split: all` in a spec reads all"


def _samples_of(spec: MovieLensSpec) -> tuple[DataSchema, Batch, dict[str, Ints], int]:
    """(schema, samples of the split, their times by column name, number of samples in all splits)."""
    folder = Path(spec.path)
    users, movies, stars, times = read_ratings(folder / "ratings.csv")
    wanted = np.flatnonzero(users <= (spec.max_user_id or users.max(initial=0)))
    if not len(wanted):
        raise UsageError(f"no rating in '{folder}' is of a user up to {spec.max_user_id}; give a larger max_user_id")
    known_users, user_rows = np.unique(users[wanted], return_inverse=True)
    known_movies, movie_rows = np.unique(movies[wanted], return_inverse=True)
    genre_names, genres = _genres(folder / "movies.csv", known_movies)
    ones = np.ones(len(wanted), np.int32)
    samples = Batch(
        dense=np.zeros((len(wanted), 0), np.float32),
        ids={
            "user": JaggedIds(values=user_rows.astype(np.int64), lengths=ones),
            "movie": JaggedIds(values=movie_rows.astype(np.int64), lengths=ones),
            "genres": genres.take(movie_rows),
        },
        labels=(stars[wanted] >= spec.positive).astype(np.float32)[:, None],
        label_names=("liked",),
        sample_ids=wanted,
    )
    low, high = (round(share * len(wanted)) for share in SPLITS[spec.split])
    if spec.split_by == "time":
        kept = np.argsort(times[wanted], kind="stable")[low:high]
    else:
        kept = np.sort(permutation(spec.split_seed, 0, "movielens split", len(wanted))[low:high])
    schema = DataSchema(
        features=(
            DataFeature(name="user", num_embeddings=len(known_users), pooling_factor=1.0, single=True),
            DataFeature(name="movie", num_embeddings=len(known_movies), pooling_factor=1.0, single=True),
            DataFeature(
                name="genres",
                num_embeddings=len(genre_names),
                pooling_factor=float(samples.ids["genres"].lengths.mean()),
            ),
        ),
        dense=(),
        labels=("liked",),
    )
    return schema, samples.take(kept), {"timestamp": times[wanted][kept]}, len(wanted)


def read_ratings(path: Path) -> tuple[Ints, Ints, "np.ndarray[tuple[int], np.dtype[np.float64]]", Ints]:
    """Users, movies, stars and times of all ratings."""
    rows = _rows(path, RATINGS)
    try:
        users, movies, times = (np.array([int(row[column]) for row in rows], dtype=np.int64) for column in (0, 1, 3))
        stars = np.array([float(row[2]) for row in rows])
    except (ValueError, OverflowError) as error:
        raise CorruptFile(f"'{path}' holds a rating that is no number: {error}; fetch the file again") from None
    wrong = ~((stars >= 0) & (stars <= MOST_STARS)) | (np.minimum(users, movies) < 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise CorruptFile(
            f"'{path}' line {at + 2} is {','.join(rows[at])!r}; users and movies are 0 or more, stars 0 to "
            f"{MOST_STARS}, so fetch the file again"
        )
    return users, movies, stars, times


def _genres(path: Path, movies: Ints) -> tuple[list[str], JaggedIds]:
    """(sorted names of the genres, genres of each movie); a movie that is not listed has an empty bag."""
    listed = {
        int(row[0]): [] if row[2] == NO_GENRE else row[2].split("|") for row in _rows(path, MOVIES) if _is_id(row[0])
    }
    names = sorted({name for each in listed.values() for name in each})
    rows = {name: row for row, name in enumerate(names)}
    known: list[int] = movies.tolist()
    bags = [[rows[name] for name in listed.get(movie, [])] for movie in known]
    return names, JaggedIds(
        values=np.array([row for bag in bags for row in bag], dtype=np.int64),
        lengths=np.array([len(bag) for bag in bags], dtype=np.int32),
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < LONGEST_ID


def _rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """The rows of a CSV file after checking its header and each row's number of columns."""
    try:
        if path.exists():
            check_is_file(path)
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(text_lines(file, path))
            header = next(reader, list[str]())
            if tuple(header) != columns:
                raise CorruptFile(f"'{path}' has the columns {', '.join(header)}; MovieLens has {', '.join(columns)}")
            rows = list(reader)
    except OSError as error:
        raise UsageError(
            f"cannot read '{path}': {error.strerror}; give a folder with ratings.csv and movies.csv"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptFile(f"'{path}' is not CSV in UTF-8: {error}; fetch it again") from None
    wrong = next((at for at, row in enumerate(rows) if len(row) != len(columns)), None)
    if wrong is not None:
        raise CorruptFile(
            f"'{path}' line {wrong + 2} has {len(rows[wrong])} columns, not {len(columns)}; fetch it again"
        )
    return rows
