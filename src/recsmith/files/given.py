"""Texts that are at hand instead of in a file, such as uploads: readers take them where they take a path."""


class Given(str):
    """The name of a text, for messages, with the text itself: no reader looks for a file or a built-in of this name."""

    __slots__ = ("text",)
    text: str

    @classmethod
    def of(cls, name: str, text: str) -> "Given":
        """A text under a name, whose ending says the form, as that of a file does."""
        made = cls(name)
        made.text = text
        return made
