"""The operator's list of images, and which of them a session may have. No I/O."""

from collections.abc import Mapping, Sequence

from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.host.engine.image_names import short_name
from orchestrator.rules.policy.levels import Level

# The rule that refuses the images that a key's entry does not list.
KEY_IMAGES = "key-images"


class ListedImages:
    """The images on the list, the default one first. The list is replaced as a whole."""

    def __init__(self, names: Sequence[str], of_levels: Mapping[str, str] | None = None) -> None:
        """`of_levels` are the default images of levels that have another one, by level."""
        self.of_levels = dict(of_levels or {})
        self.names = tuple(dict.fromkeys(names))

    def replace(self, names: Sequence[str]) -> None:
        """Puts this list in force."""
        self.names = tuple(dict.fromkeys(names))

    def full_name(self, asked: str) -> str:
        """The listed image that has that name or short name.

        Raises: ValidationError if none or several have it.
        """
        found = self._named(asked)
        if not found:
            raise ValidationError(
                f"image {asked} is not on the operator's list, which has "
                f"{_short(self.names)}: `paddock images add {asked}` adds it",
                field="image",
            )
        if len(found) > 1:
            raise ValidationError(f"image {asked} may be {' or '.join(found)}", field="image")
        return found[0]

    def permitted(self, bounds: Sequence[str] | None) -> tuple[str, ...]:
        """The listed images that `bounds` names, in its order; all of them if it is None.

        A name that is not listed, or that several images have, permits none.
        """
        if bounds is None:
            return self.names
        found = [self._named(name) for name in bounds]
        return tuple(dict.fromkeys(each[0] for each in found if len(each) == 1))

    def choose(
        self, asked: str | None, of_key: Sequence[str] | None, level: Level
    ) -> tuple[str, ...]:
        """The images that a new session may have, the one that it should have first.

        It is the one that it requests (`asked`); without a request its level's default image, then
        the default image, then the others that the key and the level permit. Raises:
        PermissionDeniedError, ValidationError.
        """
        by_key, by_level = self.permitted(of_key), self.permitted(level.images)
        if asked is None:
            both = [name for name in by_key if name in by_level]
            usual = (self.of_levels.get(level.name), self.names[0])
            if both:
                first = [name for name in usual if name is not None and name in both]
                return tuple(dict.fromkeys([*first, *both]))
            whose = f"level {level.name}" if by_key else "this key"
            raise ValidationError(
                f"{whose} permits no image of the operator's list, which has {_short(self.names)}",
                field="image",
            )
        image = self.full_name(asked)
        if image not in by_key:
            raise PermissionDeniedError(
                f"this key may not use the image {asked}: its images are {_short(by_key)}",
                rule=KEY_IMAGES,
                field="image",
            )
        if image not in by_level:
            raise ValidationError(
                f"level {level.name} does not permit the image {asked}: its images are "
                f"{_short(by_level)}",
                field="image",
            )
        return (image,)

    def check_level(self, image: str, level: Level) -> None:
        """Raises ValidationError if a session with that image may not have that level."""
        if level.images is not None and image not in self.permitted(level.images):
            raise ValidationError(
                f"level {level.name} does not permit the session's image {image}: its images are "
                f"{_short(self.permitted(level.images))}",
                field="permission_level",
            )

    def _named(self, asked: str) -> list[str]:
        if asked in self.names:
            return [asked]
        return sorted(name for name in self.names if short_name(name) == asked)


def _short(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(map(short_name, names))) or "none"
