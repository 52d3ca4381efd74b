"""MovieLens folders: ratings.csv and movies.csv as GroupLens publishes them."""

from recsmith.data.movielens.source import MovieLensSpec, movielens_source

__all__ = ["MovieLensSpec", "movielens_source"]
