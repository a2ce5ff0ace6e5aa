"""The form by which an issuer sends a logout token. Pure; it needs no library."""

from urllib.parse import parse_qsl

from orchestrator.ground.errors import ValidationError

# A token of 16 KiB is the longest that any request has; percent signs may make it longer.
MOST_FORM_BYTES = 64 * 1024
_MOST_FIELDS = 8


def logout_token_in(body: bytes) -> str:
    """Raises: ValidationError."""
    try:
        fields = parse_qsl(body.decode("ascii"), strict_parsing=True, max_num_fields=_MOST_FIELDS)
    except (ValueError, UnicodeError):
        fields = []
    found = [value for name, value in fields if name == "logout_token"]
    if len(found) != 1 or not found[0].isascii():
        raise ValidationError(
            "the body must be a form (application/x-www-form-urlencoded) with one logout_token",
            field="logout_token",
        )
    return found[0]
