"""A refusal or failure that travels back to the control plane."""


class AgentError(Exception):
    """`code` is one of the API's error codes, `rule` the policy rule that refused, if one did."""

    def __init__(self, code: str, message: str, rule: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.rule = rule
