"""Words of planners with one number behind a question mark, such as rnn?episodes=800."""

from recsmith.errors import UsageError


def number_option(word: str, name: str, key: str, usual: int, most: int) -> int:
    """The number of a word: `usual` for the bare name of the planner; UsageError for what is none from 1 to `most`."""
    if word == name:
        return usual
    value = word.removeprefix(f"{name}?{key}=")
    if value == word or not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= most):
        raise UsageError(
            f"'{word[:60]}' is no planner; write {name}, or {name}?{key}={usual} with a number from 1 to {most:,}"
        )
    return int(value)
